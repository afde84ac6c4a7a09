"""The driver in virtual time: a heap of events and a web that is only described."""

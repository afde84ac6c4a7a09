"""A web crawler that meets its deadlines inside its bandwidth."""

__version__ = "0.1.0.dev0"

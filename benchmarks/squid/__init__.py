"""What listening costs a Squid proxy, how much can be announced, and what the revisit policy gains."""

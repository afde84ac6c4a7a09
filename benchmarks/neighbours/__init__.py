"""What the other users of a link feel of a crawler."""

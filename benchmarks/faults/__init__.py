"""kill -9 a crawl at random moments under load, over and over, and count what was lost or done twice."""

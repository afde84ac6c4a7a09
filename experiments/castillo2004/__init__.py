"""castillo2004, Scheduling algorithms for Web crawling: its figures and claims on available webs."""

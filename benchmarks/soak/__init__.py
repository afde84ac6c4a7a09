"""How a crawl bears the chaos web: do good sites notice, does memory stay flat, what does fuzzing find."""

"""The statements that a commit is made of. The tables are in `schema`, who runs them in `batch`."""

from __future__ import annotations

ADD_SEEN = "INSERT OR IGNORE INTO seen (site_id, key, place) VALUES (?, ?, ?)"
ADD_WAITING = "INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
ADD_PAGE = """
    INSERT INTO page
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
PUT_SEEN = """
    INSERT INTO seen (place, page_id, site_id, key) VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET place = excluded.place, page_id = excluded.page_id"""
RETRY_LATER = "UPDATE waiting SET attempt = ?, retry_at = ? WHERE site_id = ? AND place = ?"
ADD_SUMS = """
    UPDATE site SET done = done + ?, failed = failed + ?, excluded = excluded + ?,
                    wire_bytes = wire_bytes + ?, content_bytes = content_bytes + ?,
                    started_at = coalesce(started_at, ?), free_at = coalesce(free_at, 0.0)
    WHERE id = ?"""
COUNT_OUTCOMES = """
    INSERT INTO outcome VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET pages = pages + excluded.pages"""
PUT_TASK = """
    INSERT INTO task (position, site_id, seeds, deadline_at, weight, max_pages, max_bytes, expected_bytes,
                      cap_bytes_per_s)
    VALUES ((SELECT coalesce(max(position), 0) + 1 FROM task), ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (site_id) DO UPDATE SET seeds = excluded.seeds, deadline_at = excluded.deadline_at,
        weight = excluded.weight, max_pages = excluded.max_pages, max_bytes = excluded.max_bytes,
        expected_bytes = excluded.expected_bytes, cap_bytes_per_s = excluded.cap_bytes_per_s"""
PUT_SITE = "UPDATE site SET free_at = ?, failures_in_a_row = ?, ended_at = ? WHERE id = ?"
PUT_ROBOTS = """
    INSERT INTO robots VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET text = coalesce(excluded.text, text),
                              expires_at = coalesce(excluded.expires_at, expires_at)"""
PUT_FILE = """
    INSERT INTO file (name, length_bytes) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET length_bytes = excluded.length_bytes"""
PUT_NOTICE = "INSERT OR IGNORE INTO notice (site_id, what, subject, noticed_at) VALUES (?, ?, ?, ?)"
NOTICES = """
    SELECT site, noticed_at, what, subject FROM notice JOIN site ON site.id = notice.site_id
    ORDER BY noticed_at, notice.site_id, what, subject"""
FINGERPRINTS = """
    SELECT page.id, site, fingerprint FROM page JOIN site ON site.id = page.site_id
    WHERE page.id > ? AND fingerprint IS NOT NULL ORDER BY page.id LIMIT ?"""
SERVERS = "SELECT address, rates FROM server ORDER BY address"
PUT_SERVER = """
    INSERT INTO server (address, rates) VALUES (?, ?)
    ON CONFLICT (address) DO UPDATE SET rates = excluded.rates"""
NUMBER_SITE = "INSERT INTO site (id, site) VALUES (?, ?)"
FIND_SEEN = "SELECT place, page_id FROM seen WHERE site_id = ? AND key = ?"
FIND_VERDICT = "SELECT state, kind FROM page WHERE id = ?"
NAME_FILE = "INSERT OR IGNORE INTO file (name) VALUES (?)"
FIND_FILE = "SELECT id FROM file WHERE name = ?"
DROP_WAITING = "DELETE FROM waiting WHERE site_id = ? AND place = ?"
ADD_CONTENT = "INSERT OR IGNORE INTO content VALUES (?, ?)"
FIND_CONTENT = """
    SELECT site.site, page.path, page.fetched_at, page.payload_digest
    FROM content JOIN page ON page.id = content.page_id JOIN site ON site.id = page.site_id
    WHERE content.fingerprint = ? AND page.digest = ?"""
LOAD_TASKS = """
    SELECT site, seeds, deadline_at, weight, max_pages, max_bytes, expected_bytes, cap_bytes_per_s
    FROM task JOIN site ON site.id = task.site_id ORDER BY position"""
# A site has been free at some time once it was asked; those only linked to are nothing to go on with.
LOAD_SITES = """
    SELECT site, free_at, failures_in_a_row, robots.text, robots.expires_at, ended_at,
           started_at, done, failed, excluded, wire_bytes, content_bytes
    FROM site LEFT JOIN robots ON robots.site_id = site.id
    WHERE free_at NOT NULL ORDER BY id"""
LOAD_WAITING = """
    SELECT site, path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting JOIN site ON site.id = waiting.site_id ORDER BY place"""
COUNT_WAITING = "SELECT site, count(*) FROM waiting JOIN site ON site.id = site_id GROUP BY site_id"
FIRST_WAITING = """
    SELECT path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting INDEXED BY waiting_in_order WHERE site_id = ? ORDER BY rank, place LIMIT ?"""
FIRST_DUE = """
    SELECT path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting INDEXED BY waiting_in_order
    WHERE site_id = ? AND (retry_at IS NULL OR retry_at <= ?) ORDER BY rank, place LIMIT ?"""
RANK_ANEW = """
    UPDATE waiting SET rank =
        rank_of((SELECT site FROM site WHERE site.id = site_id), path, key, depth, coalesce(score, 0.0))"""

TOTALS = """
    SELECT count(*), (SELECT count(*) FROM seen), (SELECT count(*) FROM waiting), coalesce(sum(done), 0),
           coalesce(sum(failed), 0), coalesce(sum(excluded), 0), coalesce(sum(wire_bytes), 0),
           coalesce(sum(content_bytes), 0)
    FROM site WHERE free_at NOT NULL OR id IN (SELECT site_id FROM task)"""
SITES = """
    SELECT site, done, failed, excluded, coalesce(queue.pages, 0), wire_bytes, content_bytes,
           task.deadline_at, started_at, ended_at, free_at
    FROM site
    LEFT JOIN task ON task.site_id = site.id
    LEFT JOIN (
        -- Pages that only wait for the day of their next visit do not keep their site from being done.
        SELECT site_id, count(*) FILTER (WHERE attempt >= 0 OR retry_at IS NULL) AS pages
        FROM waiting GROUP BY site_id
    ) AS queue ON queue.site_id = site.id
    WHERE task.site_id NOT NULL OR free_at NOT NULL OR queue.pages > 0
    ORDER BY site.id"""
OUTCOMES = """
    SELECT state, kind, reason, sum(pages) AS total FROM outcome
    WHERE ? IS NULL OR site_id = (SELECT id FROM site WHERE site = ?)
    GROUP BY state, kind, reason ORDER BY total DESC, state, kind, reason"""
PAGES = """
    SELECT page.id, site, path, key, depth, state, attempt, kind, status, page.wire_bytes, page.content_bytes,
           content_type, digest, settled_at, fetched_at, duration_s, detail, file.name, warc_offset,
           warc_length, coalesce(payload_digest, digest), record_type
    FROM page JOIN site ON site.id = page.site_id LEFT JOIN file ON file.id = page.file_id
    WHERE page.id > ? ORDER BY page.id LIMIT ?"""

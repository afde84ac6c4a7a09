"""The statements that a commit is made of, each over whole columns. The tables are in `tables`."""

from __future__ import annotations

NAME_SITES = """
    INSERT INTO site (site) SELECT name FROM unnest(%s::text[]) AS name ORDER BY name
    ON CONFLICT DO NOTHING"""
FIND_SITES = "SELECT id, site FROM site WHERE site = ANY(%s::text[])"
NAME_FILES = """
    INSERT INTO file (name) SELECT name FROM unnest(%s::text[]) AS name ORDER BY name
    ON CONFLICT DO NOTHING"""
FIND_FILES = "SELECT id, name FROM file WHERE name = ANY(%s::text[])"
PUT_FILES = """
    UPDATE file SET length_bytes = new.length_bytes
    FROM unnest(%s::bigint[], %s::bigint[]) AS new (id, length_bytes) WHERE file.id = new.id"""
DRAW_BLOCKS = "SELECT nextval(%s) FROM generate_series(1, %s)"

ADD_SEEN = """
    INSERT INTO seen (site_id, key, place)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[])
    ON CONFLICT DO NOTHING RETURNING place"""
FIND_SEEN = """
    SELECT seen.site_id, seen.key, seen.place, seen.page_id, page.state, page.kind
    FROM unnest(%s::bigint[], %s::bigint[]) AS asked (site_id, key)
    JOIN seen ON seen.site_id = asked.site_id AND seen.key = asked.key
    LEFT JOIN page ON page.id = seen.page_id"""
RETRY_LATER = """
    UPDATE waiting SET attempt = new.attempt, retry_at = new.retry_at
    FROM unnest(%s::bigint[], %s::double precision[], %s::bigint[], %s::bigint[])
        AS new (attempt, retry_at, site_id, place)
    WHERE waiting.site_id = new.site_id AND waiting.place = new.place"""
DROP_WAITING = """
    DELETE FROM waiting USING unnest(%s::bigint[], %s::bigint[]) AS old (site_id, place)
    WHERE waiting.site_id = old.site_id AND waiting.place = old.place"""
PUT_SEEN = """
    INSERT INTO seen (place, page_id, site_id, key)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    ON CONFLICT (site_id, key) DO UPDATE SET place = excluded.place, page_id = excluded.page_id"""
ADD_CONTENT = """
    INSERT INTO content SELECT * FROM unnest(%s::bigint[], %s::bigint[]) ON CONFLICT DO NOTHING"""
ADD_MAIL = "INSERT INTO mail SELECT * FROM unnest(%s::bigint[], %s::bigint[]) ON CONFLICT DO NOTHING"
ADD_HOLDINGS = """
    INSERT INTO holding (site_id) SELECT id FROM unnest(%s::bigint[]) AS id ORDER BY id
    ON CONFLICT DO NOTHING"""

PUT_TASKS = """
    INSERT INTO task (position, site_id, seeds, deadline_at, weight, max_pages, max_bytes, expected_bytes,
                      cap_bytes_per_s)
    SELECT (SELECT coalesce(max(position), 0) FROM task) + new.number, new.site_id, new.seeds,
           new.deadline_at, new.weight, new.max_pages, new.max_bytes, new.expected_bytes, new.cap_bytes_per_s
    FROM unnest(%s::bigint[], %s::text[], %s::double precision[], %s::double precision[], %s::bigint[],
                %s::bigint[], %s::bigint[], %s::double precision[]) WITH ORDINALITY
        AS new (site_id, seeds, deadline_at, weight, max_pages, max_bytes, expected_bytes, cap_bytes_per_s,
                number)
    ON CONFLICT (site_id) DO UPDATE SET seeds = excluded.seeds, deadline_at = excluded.deadline_at,
        weight = excluded.weight, max_pages = excluded.max_pages, max_bytes = excluded.max_bytes,
        expected_bytes = excluded.expected_bytes, cap_bytes_per_s = excluded.cap_bytes_per_s"""
PUT_SITES = """
    UPDATE site SET free_at = new.free_at, failures_in_a_row = new.failures, ended_at = new.ended_at
    FROM unnest(%s::double precision[], %s::bigint[], %s::double precision[], %s::bigint[])
        AS new (free_at, failures, ended_at, id)
    WHERE site.id = new.id"""
PUT_ROBOTS = """
    INSERT INTO robots SELECT * FROM unnest(%s::bigint[], %s::text[], %s::double precision[])
    ON CONFLICT (site_id) DO UPDATE SET text = coalesce(excluded.text, robots.text),
        expires_at = coalesce(excluded.expires_at, robots.expires_at)"""
ADD_SUMS = """
    UPDATE site SET done = site.done + new.done, failed = site.failed + new.failed,
        excluded = site.excluded + new.excluded, wire_bytes = site.wire_bytes + new.wire_bytes,
        content_bytes = site.content_bytes + new.content_bytes,
        started_at = coalesce(site.started_at, new.started_at), free_at = coalesce(site.free_at, 0)
    FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::double precision[],
                %s::bigint[])
        AS new (done, failed, excluded, wire_bytes, content_bytes, started_at, id)
    WHERE site.id = new.id"""
COUNT_OUTCOMES = """
    INSERT INTO outcome SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::bigint[])
    ON CONFLICT (site_id, state, kind, reason) DO UPDATE SET pages = outcome.pages + excluded.pages"""
PUT_SERVERS = """
    INSERT INTO server SELECT * FROM unnest(%s::text[], %s::bytea[])
    ON CONFLICT (address) DO UPDATE SET rates = excluded.rates"""
PUT_NOTICES = """
    INSERT INTO notice (site_id, what, subject, noticed_at)
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::double precision[])
    ON CONFLICT DO NOTHING"""
FIND_CONTENT = """
    SELECT site.site, page.path, page.fetched_at, page.payload_digest
    FROM content JOIN page ON page.id = content.page_id JOIN site ON site.id = page.site_id
    WHERE content.fingerprint = %s AND page.digest = %s"""
FIND_CONTENTS = """
    SELECT asked.digest, site.site, page.path, page.fetched_at, page.payload_digest
    FROM unnest(%s::bigint[], %s::text[]) AS asked (fingerprint, digest)
    JOIN content ON content.fingerprint = asked.fingerprint
    JOIN page ON page.id = content.page_id AND page.digest = asked.digest
    JOIN site ON site.id = page.site_id"""
COLUMN_TYPES = """
    SELECT table_name, data_type FROM information_schema.columns
    WHERE table_schema = %s AND table_name = ANY(%s) ORDER BY ordinal_position"""
COUNT_WAITING = """
    SELECT site.id, site.site, count(*) FROM waiting JOIN site ON site.id = site_id
    WHERE %(sites)s::bigint[] IS NULL OR site_id = ANY(%(sites)s) GROUP BY site.id ORDER BY site.id"""
FIRST_WAITING = """
    SELECT path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting WHERE site_id = %s ORDER BY rank, place LIMIT %s"""
FIRST_DUE = """
    SELECT path, key, depth, coalesce(score, 0.0), attempt, retry_at FROM waiting
    WHERE site_id = %s AND (retry_at IS NULL OR retry_at <= %s) ORDER BY rank, place LIMIT %s"""
COUNT_DUE = """
    SELECT site.id, site.site, count(*) FROM waiting JOIN site ON site.id = site_id
    WHERE site_id = ANY(%(sites)s) AND (retry_at IS NULL OR retry_at <= %(due_by)s)
    GROUP BY site.id ORDER BY site.id"""
PUT_OFF = """
    SELECT site, path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting JOIN site ON site.id = waiting.site_id
    WHERE site_id = ANY(%(sites)s) AND retry_at > %(due_by)s ORDER BY place"""
ALL_WAITING = """
    SELECT site_id, place, site, path, key, depth, coalesce(score, 0.0)
    FROM waiting JOIN site ON site.id = waiting.site_id"""
RANK_ANEW = """
    UPDATE waiting SET rank = new.rank
    FROM unnest(%s::bigint[], %s::bigint[], %s::double precision[]) AS new (site_id, place, rank)
    WHERE waiting.site_id = new.site_id AND waiting.place = new.place"""

"""The statements by which collectors and their leader coordinate; `store.postgres.tables` has the tables."""

from __future__ import annotations

NOW = "extract(epoch FROM clock_timestamp())::double precision"

JOIN = f"""
    INSERT INTO collector (name, label, version, joined_at, until_at)
    VALUES (%s, %s, %s, {NOW}, {NOW} + %s) RETURNING id"""  # noqa: S608
READ_CLOCK = f"SELECT {NOW}"
OTHER_VERSIONS = f"""
    SELECT DISTINCT version FROM collector WHERE NOT is_gone AND until_at > {NOW} AND version <> %s"""  # noqa: S608
RENEW = f"""
    UPDATE collector SET until_at = {NOW} + %s, taken_share = %s, report = %s, second = %s,
        received_bytes = %s
    WHERE id = %s AND NOT is_gone AND until_at > {NOW} RETURNING until_at - {NOW}"""  # noqa: S608
# Nobody else is given a site before its holder is buried, however long the lease has been over.
FENCE = """
    UPDATE collector SET last_batch = %s
    WHERE id = %s AND NOT is_gone AND last_batch < %s RETURNING id"""
LAST_BATCH = "SELECT last_batch FROM collector WHERE id = %s"
NEWEST_SHARE = f"""
    SELECT number, rate_bytes_per_s, until_at - {NOW} FROM share
    WHERE collector_id = %s AND until_at > {NOW} ORDER BY number DESC LIMIT 1"""  # noqa: S608
NOT_TAKEN = """
    SELECT holding.site_id, site.site, soiled_until FROM holding JOIN site ON site.id = holding.site_id
    WHERE collector_id = %s AND NOT is_taken ORDER BY site_id LIMIT %s"""
TAKE = "UPDATE holding SET is_taken = true WHERE site_id = ANY(%s) AND collector_id = %s"
ASKED_BACK = """
    SELECT site.site FROM holding JOIN site ON site.id = holding.site_id
    WHERE collector_id = %s AND is_asked_back AND is_taken"""
FETCH_MAIL = """
    DELETE FROM mail USING holding
    WHERE holding.site_id = mail.site_id AND holding.collector_id = %s AND holding.is_taken
    RETURNING mail.site_id, mail.place"""
READ_MAIL = """
    SELECT site.site, path, key, depth, coalesce(score, 0.0)
    FROM unnest(%s::bigint[], %s::bigint[]) AS mine (site_id, place)
    JOIN waiting ON waiting.site_id = mine.site_id AND waiting.place = mine.place
    JOIN site ON site.id = mine.site_id"""
COUNT_COLLECTORS = f"SELECT count(*) FROM collector WHERE NOT is_gone AND until_at > {NOW}"  # noqa: S608
IS_OVER = "SELECT ended_at IS NOT NULL FROM crawl"
PUT_ROUND_TRIPS = """
    INSERT INTO latency SELECT site.id, %s, new.round_trip_s
    FROM unnest(%s::text[], %s::double precision[]) AS new (site, round_trip_s)
    JOIN site ON site.site = new.site
    ORDER BY site.id
    ON CONFLICT (site_id, label) DO UPDATE SET round_trip_s = excluded.round_trip_s"""
TO_MEASURE = """
    SELECT site.site FROM holding JOIN collector ON collector.id = holding.collector_id
    JOIN site ON site.id = holding.site_id
    WHERE collector.label <> %s AND holding.is_taken AND NOT EXISTS (
        SELECT FROM latency WHERE latency.site_id = holding.site_id AND latency.label = %s)
    ORDER BY holding.site_id LIMIT %s"""
GIVE_BACK = """
    UPDATE holding SET collector_id = NULL, is_taken = false, is_asked_back = false, soiled_until = NULL
    FROM site WHERE site.id = holding.site_id AND site.site = ANY(%s) AND collector_id = %s"""
GIVE_ALL_BACK = """
    UPDATE holding SET collector_id = NULL, is_taken = false, is_asked_back = false, soiled_until = NULL
    WHERE collector_id = %s"""
LEAVE = f"UPDATE collector SET is_gone = true, until_at = least(until_at, {NOW}) WHERE id = %s"  # noqa: S608
DROP_SHARES = "DELETE FROM share WHERE collector_id = %s"

BURY = f"UPDATE collector SET is_gone = true WHERE NOT is_gone AND until_at <= {NOW} RETURNING id"  # noqa: S608
FREE_DEAD = """
    UPDATE holding SET collector_id = NULL, is_taken = false, is_asked_back = false,
        soiled_until = CASE WHEN is_taken THEN collector.until_at ELSE soiled_until END
    FROM collector WHERE collector.id = holding.collector_id AND collector.is_gone"""
COLLECTORS = f"""
    SELECT id, label, taken_share, report,
        (SELECT count(*) FROM holding WHERE collector_id = collector.id AND NOT is_taken),
        (SELECT count(*) FROM holding WHERE collector_id = collector.id AND is_asked_back)
    FROM collector WHERE NOT is_gone AND until_at > {NOW} ORDER BY id"""  # noqa: S608
DROP_OLD_SHARES = f"DELETE FROM share WHERE until_at <= {NOW}"  # noqa: S608
SHARES = f"""
    SELECT share.collector_id, rate_bytes_per_s, share.until_at, number, taken_share, {NOW}
    FROM share JOIN collector ON collector.id = share.collector_id WHERE share.until_at > {NOW}"""  # noqa: S608
ADD_SHARES = """
    INSERT INTO share (collector_id, rate_bytes_per_s, until_at)
    SELECT * FROM unnest(%s::bigint[], %s::double precision[], %s::double precision[])"""
UNHELD = "SELECT site_id FROM holding WHERE collector_id IS NULL ORDER BY site_id LIMIT %s"
ROUND_TRIPS = "SELECT site_id, label, round_trip_s FROM latency WHERE site_id = ANY(%s)"
ROUND_TRIPS_OF = """
    SELECT site.site, label, round_trip_s FROM latency JOIN site ON site.id = latency.site_id
    WHERE site.site = ANY(%s)"""
ASSIGN = """
    UPDATE holding SET collector_id = new.collector_id, is_taken = false, is_asked_back = false
    FROM unnest(%s::bigint[], %s::bigint[]) AS new (site_id, collector_id)
    WHERE holding.site_id = new.site_id AND holding.collector_id IS NULL"""
ASK_BACK = """
    UPDATE holding SET is_asked_back = true FROM site
    WHERE site.id = holding.site_id AND site.site = ANY(%s) AND collector_id = %s AND is_taken"""
# Before `END`, which would else decide by what was there before it waited: whoever queues pages of a crawl
# that is over, as mending does, holds this row until they are there.
MAY_END = """
    SELECT FROM crawl WHERE ended_at IS NULL AND NOT EXISTS (SELECT FROM waiting) FOR UPDATE"""
END = f"""
    UPDATE crawl SET ended_at = {NOW}
    WHERE ended_at IS NULL AND NOT EXISTS (SELECT FROM waiting) RETURNING ended_at"""  # noqa: S608
RECEIVED = "SELECT id, second, received_bytes FROM collector"
READ_SINCE = """
    SELECT (SELECT coalesce(sum(received_bytes), 0) FROM collector) - coalesce(
        (SELECT wire_bytes FROM sample WHERE at <= %s ORDER BY at DESC LIMIT 1), 0)"""
ADD_SAMPLE = "INSERT INTO sample (at, wire_bytes, capacity_bytes_per_s) VALUES (%s, %s, %s)"
BEGIN_AGAIN = "UPDATE crawl SET ended_at = NULL"

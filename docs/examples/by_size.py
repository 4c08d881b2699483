import sqlite3

QUERY = """
    SELECT size, agent_id, count(*), round(avg(primary_outcome), 3)
    FROM runs JOIN conditions USING (condition_id)
    GROUP BY size, agent_id
"""
for row in sqlite3.connect("elsewhere/study.sqlite").execute(QUERY):
    print(*row)

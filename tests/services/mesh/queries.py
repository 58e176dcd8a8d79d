"""Queries that a person might write, and those that nobody should get an answer to; with tables to ask."""

from __future__ import annotations

from typing import Final

from hearthnet_mesh.query.views import Row

BINDINGS: Final = {"x": "a%", "y": "b"}

GOOD: Final = """\
select capability, node from offers where capability like :x order by 1 limit 5
select count(*) from posts
select category, count(*) as n from posts group by category having count(*) > 1 order by n desc
select p.title, n.display_name from posts p join nodes n on n.node = p.author where p.expires_at > :x
select p.title, n.display_name from posts as p left join nodes as n on n.node = p.author
with mine as (select * from calls where code <> :x) select capability, avg(ms) from mine group by capability
select capability, ms, row_number() over (partition by capability order by ms desc) as place from calls
select node from nodes union select caller from calls order by 1
select node from nodes intersect select node from offers
select node from nodes except select node from offers
select json_extract(params, '$.model') as m, params->>'$.ctx' from offers where params -> '$.ctx' is not null
select strftime('%Y', created_at), date(created_at, '-1 day'), datetime('now') from posts
select group_concat(title, ', ') from posts
select case when online then 1 else 0 end from nodes
select cast(ms as integer), cast(ms as text), coalesce(run, ''), iif(ms > 1, 1, 2), ifnull(run, :x) from calls
select * from (select node from nodes) as s
select distinct name, version from offers where name in (select name from capabilities where side_effects = 1)
select exists(select 1 from posts), not 1, 1 is null, 1 between 0 and 2, -1, 2 % 3, 1 || 2
select title from posts where title like :x escape :y
select n.* from nodes n
select min(ms), max(ms), total(ms), sum(ms), abs(-1), round(1.5, 1), length(:x) from calls
select lower(:x), upper(:x)
select substr(:x, 1, 2), max(1, 2), min(1, 2), nullif(1, 1)
select count(*) filter (where code = :x) from calls
select true, false, null, (1), (select max(ms) from calls)
select 1 as one -- a comment
SELECT "node" FROM "Nodes";
with a(x) as (select node from nodes) select x from a
with a as (select node from nodes), b as (select node from a) select node from b
select unixepoch(at), julianday(at), time(at) from calls
select title from posts order by created_at collate nocase desc nulls last limit 3 offset 1
select rank() over w, dense_rank() over w from calls window w as (order by ms)
select sum(ms) over (order by at rows between 1 preceding and current row) from calls
select title from posts where title glob :x and not title = :x or title is not :x""".splitlines()

WRITING: Final = """\
delete from posts
insert into posts (title) values (1)
insert into posts (title) select name from corpora
replace into posts (title) values (1)
update posts set title = 1
drop table posts
create table x (a)
create temp view v as select 1
create index i on posts (title)
alter table posts rename to p
pragma table_info(posts)
pragma query_only = 0
pragma hard_heap_limit = 0
attach ':memory:' as x
attach '/etc/passwd' as x
detach main
vacuum
vacuum into 'never-written'
begin
commit
rollback
savepoint s
analyze
select load_extension(:x)
select load_extension('x', 'y')
select randomblob(1000000000)
select zeroblob(1000000000)
select printf('%1000000000d', 1)
select hex(title) from posts
select replace(title, :x, :x) from posts
select instr(title, :x) from posts
select trim(title, :x) from posts
select sqlite_version()
select random()
select * from sqlite_master
select * from sqlite_schema
select * from sqlite_temp_master
select rowid from posts
select * from pragma_table_info('posts')
select * from pragma_database_list
select * from json_each(:x)
select * from dbstat
with recursive a(x) as (select 1 union all select x + 1 from a) select * from a
with a(x) as (select 1 union all select x + 1 from a) select * from a""".splitlines()
"""What the wall has to refuse although no gate stood before it."""


def tables(posts: int = 3, calls: int = 3) -> dict[str, list[Row]]:
    """Some rows, with so many posts and calls."""
    return {
        "nodes": [("n1", "Kitchen", "anchor", "2026-01-01T00:00:00Z", 1, "2026-01-01T00:00:00Z")],
        "offers": [("a.b@1.0", "a.b", "1.0", "n1", "a", '{"model":"m"}', None, "m", "member", 4, 0)],
        "posts": [
            (
                f"e{n}",
                n,
                "n1",
                "offer",
                f"title {n}",
                "b" * 4000,
                "null",
                "[]",
                "2026-01-01T00:00:00Z",
                "2027",
            )
            for n in range(posts)
        ],
        "calls": [
            ("2026-01-01T00:00:00Z", "a.b@1.0", "n1", "n1", "ok", n / 2, None, f"{n:032}", 1, 2)
            for n in range(calls)
        ],
    }

-- Journals: one narrow head row per instance, and one row per record that holds the stored line.
-- The line is the only authenticated part. Everything else is a hint that the node checks.

create table schema_version (
  version int primary key,
  name text not null,
  sha256 text not null,
  applied_at timestamptz not null default clock_timestamp()
);

create table head (
  journal bigint generated always as identity primary key,
  session text collate "C" not null,
  instance text collate "C" not null,
  seq bigint not null,
  mac bytea not null,
  at bigint not null,
  segment_seq bigint not null,
  epoch bigint not null default 0,
  claim uuid,
  driver uuid,
  sealed boolean not null default false,
  ended boolean not null default false,
  unique (session, instance)
) with (fillfactor = 50);
create unique index head_living on head (session) where not ended;
create index head_driver on head (driver) where driver is not null;

-- Sessions that were written to in the last two minutes, and those that the index lacks: `listed` is the
-- last record that it knows. Lists and followers read these rows instead of every head.
create table moved (
  journal bigint primary key,
  seq bigint not null,
  listed bigint not null default 0,
  at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

create table record (
  journal bigint not null,
  seq bigint not null,
  line bytea not null check (octet_length(line) <= 1048576),
  primary key (journal, seq)
) with (autovacuum_vacuum_insert_scale_factor = 0.05);
alter table record alter column line set storage external;

-- Where each segment begins. A wrong row makes a digest fail; it never makes one hold.
create table segment (
  journal bigint not null,
  number int not null,
  first_seq bigint not null,
  primary key (journal, number)
);

create table quarantine (
  item bigint generated always as identity primary key,
  journal bigint not null,
  kind text not null,
  payload bytea not null,
  kept_at timestamptz not null default clock_timestamp()
);
create index quarantine_kept_at on quarantine (kept_at);
create index quarantine_journal on quarantine (journal);

create table output (
  journal bigint not null,
  digest text not null,
  data bytea not null,
  kept_at timestamptz not null default clock_timestamp(),
  primary key (journal, digest)
);
create index output_kept_at on output (kept_at);
alter table output alter column data set storage external;

create table snapshot (
  journal bigint primary key,
  data bytea not null
);
alter table snapshot alter column data set storage external;

-- One uninterrupted history of this database. A node that finds that the server was promoted,
-- restored or replaced declares a new one, and every node compares its anchors with it.
create table era (
  only_one boolean primary key default true check (only_one),
  id uuid not null,
  number bigint not null,
  system text not null,
  timeline text not null
);

-- A node is a folder with keys and anchors. It has compared its anchors with this era.
create table node (
  node uuid primary key,
  machine text not null,
  host text not null,
  version text not null,
  reconciled text not null,
  key_ids text[] not null,
  seen_at timestamptz not null default clock_timestamp()
);

-- A process of a node that drives sessions. Its claims stand as long as its lease.
create table process (
  incarnation uuid primary key,
  node uuid not null,
  machine text not null,
  pid int not null,
  start_time text not null,
  lease_until timestamptz not null
);

-- Volatile, as the function that it asks: only then is it part of the statement that calls it.
create function timeline() returns text language sql as $$
  select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
$$;

-- Bound the wait for a row, and how long a process that stops may hold one, until the end of the
-- transaction: through a pooler a connection has no settings of its own.
create function bound_wait() returns void language plpgsql as $$
begin
  if current_setting('lock_timeout') = '0' then
    perform set_config('lock_timeout', '10s', true),
      set_config('idle_in_transaction_session_timeout', '5s', true);
  end if;
end $$;

-- A cache is not waited for: after a crash of the server, its reader sees that it lacks something.
-- Until the end of the transaction, which must have no record in it.
create function write_cache() returns void language sql as $$
  select set_config('synchronous_commit', 'off', true)
$$;

-- p_timeline: the timeline and the era that the writer has compared its anchors with.
create function check_server(p_timeline text) returns void language plpgsql as $$
declare
  found_timeline text := timeline() || '/' || (select id from era where only_one);
begin
  if found_timeline is distinct from p_timeline then
    raise exception using errcode = 'HF002',
      message = format('the database is on timeline %s, not %s', found_timeline, p_timeline);
  end if;
  if current_setting('synchronous_commit') = 'off' then
    raise exception using errcode = 'HF004', message = 'synchronous_commit is off';
  end if;
  perform bound_wait();
end $$;

-- The law of every append, under the head's row lock. Outcomes:
--   k kept          m moved         f fenced    s sealed   g gone
--   b row is held   c the writer's clock is ahead          x the active segment was changed
create function outcome_of(
  p_ended boolean, p_sealed boolean, h_seq bigint, h_mac bytea, h_epoch bigint, h_claim uuid,
  p_seq bigint, p_mac bytea, p_epoch bigint, p_claim uuid, p_at bigint, p_latest bigint
) returns text language sql immutable as $$
  select case
    when p_ended then 'g'
    when p_sealed then 's'
    when p_claim is not null and (h_epoch, h_claim) is distinct from (p_epoch, p_claim) then 'f'
    when (h_seq, h_mac, h_epoch) is distinct from (p_seq, p_mac, p_epoch) then 'm'
    when p_at > p_latest then 'c'
    else 'k' end
$$;

-- Compare the head and append. `m` comes with up to 256 records.
-- Nearly every append is kept, so the first statement locks, compares and moves the head at once. If
-- it finds no such row, the second part says why.
create function append_one(
  p_journal bigint, p_seq bigint, p_mac bytea, p_epoch bigint, p_claim uuid, p_lines bytea[],
  p_new_mac bytea, p_at bigint, p_prefix bytea, p_segment int, p_segment_seq bigint,
  p_ahead_ms bigint, p_timeline text,
  out outcome text, out seq bigint, out mac bytea, out epoch bigint, out suffix bytea[]
)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
  h head; n int := coalesce(cardinality(p_lines), 0);
  latest bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint + p_ahead_ms;
begin
  if current_setting('lock_timeout') = '0' then
    perform bound_wait();
  end if;
  if n > 0 and p_prefix is null and current_setting('synchronous_commit') <> 'off' then
    update head set seq = p_seq + n, mac = p_new_mac, at = p_at,
        segment_seq = coalesce(p_segment_seq, segment_seq)
      where journal = p_journal
        and p_timeline = timeline() || '/' || (select id from era where only_one)
        and outcome_of(ended, sealed, seq, mac, epoch, claim,
          p_seq, p_mac, p_epoch, p_claim, p_at, latest) = 'k';
    outcome := case when found then 'k' end;
  end if;
  if outcome is null then
    perform check_server(p_timeline);
    select * into h from head where journal = p_journal for no key update;
    if not found then
      outcome := 'g';
      return;
    end if;
    seq := h.seq;
    mac := h.mac;
    epoch := h.epoch;
    outcome := outcome_of(h.ended, h.sealed, h.seq, h.mac, h.epoch, h.claim,
      p_seq, p_mac, p_epoch, p_claim, case when n > 0 then p_at end, latest);
    if outcome = 'k' and p_prefix is not null and p_prefix is distinct from (
      select sha256(string_agg(r.line, ''::bytea order by r.seq))
      from record r where r.journal = h.journal and r.seq >= h.segment_seq) then
      outcome := 'x';
    elsif outcome = 'm' then
      select array_agg(q.line order by q.seq) into suffix from (
        select r.line, r.seq from record r
        where r.journal = h.journal and r.seq > p_seq order by r.seq limit 256) q;
    end if;
    if outcome <> 'k' or n = 0 then
      return;
    end if;
    update head set seq = p_seq + n, mac = p_new_mac, at = p_at,
      segment_seq = coalesce(p_segment_seq, segment_seq) where journal = p_journal;
  end if;
  if n = 1 then  -- without a scan over the array
    insert into record (journal, seq, line) values (p_journal, p_seq + 1, p_lines[1]);
  else
    insert into record (journal, seq, line)
      select p_journal, p_seq + l.place, l.line
      from unnest(p_lines) with ordinality as l (line, place);
  end if;
  if p_segment is not null then
    insert into segment (journal, number, first_seq) values (p_journal, p_segment, p_segment_seq);
  end if;
  update moved set seq = p_seq + n, at = clock_timestamp() where journal = p_journal;
  if not found then  -- the lists may add the row at the same time
    insert into moved (journal, seq) values (p_journal, p_seq + n)
      on conflict (journal) do update set seq = excluded.seq, at = clock_timestamp();
  end if;
  seq := p_seq + n;
  mac := p_new_mac;
  epoch := p_epoch;
end $$;

-- The appends of many sessions, sorted by journal: one order of locks for all. Return one outcome
-- for each, as one letter. `p_item` and `p_place` say which append a line belongs to, and where.
-- Every row is found by its key: a plan that was made while a table was small is kept for long.
-- A plan without its cheapest way looks expensive, so that the server would compile it each time.
create function append_many(
  p_journal bigint[], p_seq bigint[], p_mac bytea[], p_epoch bigint[], p_claim uuid[],
  p_count int[], p_new_mac bytea[], p_at bigint[], p_prefix bytea[], p_segment int[],
  p_segment_seq bigint[], p_item int[], p_place int[], p_lines bytea[],
  p_ahead_ms bigint, p_timeline text
) returns text
language plpgsql security definer set search_path from current
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
  letters text; is_all boolean;
  latest bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint + p_ahead_ms;
begin
  perform check_server(p_timeline);
  with given as materialized (
    select * from unnest(p_journal, p_seq, p_mac, p_epoch, p_claim, p_count, p_at) with ordinality
      as g (journal, seq, mac, epoch, claim, lines, at, n)
  ), locked as materialized (
    select g.n, outcome_of(h.ended, h.sealed, h.seq, h.mac, h.epoch, h.claim,
        g.seq, g.mac, g.epoch, g.claim, case when g.lines > 0 then g.at end, latest) as outcome
      from given g join head h on h.journal = g.journal
      order by g.n for no key update of h skip locked
  ) select string_agg(coalesce(l.outcome,
      case when exists (select 1 from head h where h.journal = g.journal) then 'b' else 'g' end),
      '' order by g.n) into letters
    from given g left join locked l on l.n = g.n;
  if p_prefix is not null then
    select string_agg(case when g.prefix is not null and substr(letters, g.n::int, 1) = 'k'
        and g.prefix is distinct from (
          select sha256(string_agg(r.line, ''::bytea order by r.seq)) from record r
          where r.journal = g.journal
            and r.seq >= (select h.segment_seq from head h where h.journal = g.journal))
        then 'x' else substr(letters, g.n::int, 1) end, '' order by g.n) into letters
      from unnest(p_journal, p_prefix) with ordinality as g (journal, prefix, n);
  end if;
  is_all := letters = repeat('k', length(letters));
  insert into record (journal, seq, line)
    select p_journal[l.item], p_seq[l.item] + l.place, l.line
    from unnest(p_item, p_place, p_lines) as l (item, place, line)
    where is_all or substr(letters, l.item, 1) = 'k';
  if not found then
    return letters;
  end if;
  update head h set seq = g.seq + g.lines, mac = g.mac, at = g.at,
      segment_seq = coalesce(g.segment_seq, h.segment_seq)
    from unnest(p_journal, p_seq, p_count, p_new_mac, p_at, p_segment_seq) with ordinality
      as g (journal, seq, lines, mac, at, segment_seq, n)
    where h.journal = g.journal and g.lines > 0
      and (is_all or substr(letters, g.n::int, 1) = 'k');
  if p_segment is not null then
    insert into segment (journal, number, first_seq)
      select g.journal, g.number, g.first_seq
      from unnest(p_journal, p_segment, p_segment_seq) with ordinality
        as g (journal, number, first_seq, n)
      where g.number is not null and substr(letters, g.n::int, 1) = 'k';
  end if;
  insert into moved as old (journal, seq)
    select g.journal, g.seq + g.lines
    from unnest(p_journal, p_seq, p_count) with ordinality as g (journal, seq, lines, n)
    where g.lines > 0 and (is_all or substr(letters, g.n::int, 1) = 'k') order by g.n
    on conflict (journal) do update set seq = excluded.seq, at = clock_timestamp();
  return letters;
end $$;

-- A birth: the home's record, the head and the first records, in one transaction.
create function create_journal(
  p_session text, p_instance text, p_lines bytea[], p_mac bytea, p_at bigint,
  p_home bigint, p_seq bigint, p_home_mac bytea, p_epoch bigint, p_home_lines bytea[],
  p_new_mac bytea, p_home_at bigint, p_segment int, p_segment_seq bigint,
  p_ahead_ms bigint, p_timeline text
) returns table (outcome text, seq bigint, mac bytea, epoch bigint, suffix bytea[], journal bigint)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
  a record; j bigint;
begin
  select * into a from append_one(p_home, p_seq, p_home_mac, p_epoch, null, p_home_lines, p_new_mac,
    p_home_at, null, p_segment, p_segment_seq, p_ahead_ms, p_timeline);
  if a.outcome = 'k' then
    update head h set ended = true where h.session = p_session and not h.ended;
    insert into head (session, instance, seq, mac, at, segment_seq)
      values (p_session, p_instance, cardinality(p_lines), p_mac, p_at, 1)
      returning head.journal into j;
    insert into record (journal, seq, line)
      select j, i, p_lines[i] from generate_series(1, cardinality(p_lines)) i;
    insert into segment (journal, number, first_seq) values (j, 1, 1);
    insert into moved (journal, seq) values (j, cardinality(p_lines));
  end if;
  return query select a.outcome, a.seq, a.mac, a.epoch, a.suffix, j;
end $$;

-- The home's own first records. A second home in one schema is refused by the unique key.
create function create_home(
  p_session text, p_instance text, p_lines bytea[], p_mac bytea, p_at bigint
) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  j bigint;
begin
  insert into head (session, instance, seq, mac, at, segment_seq)
    values (p_session, p_instance, cardinality(p_lines), p_mac, p_at, 1)
    on conflict do nothing returning journal into j;
  if j is not null then
    insert into record (journal, seq, line)
      select j, i, p_lines[i] from generate_series(1, cardinality(p_lines)) i;
    insert into segment (journal, number, first_seq) values (j, 1, 1);
    insert into era (id, number, system, timeline) values (gen_random_uuid(), 1,
      (select system_identifier from pg_control_system())::text, timeline());
  end if;
  return j;
end $$;

-- The end of a session: the home's record of it, and its bytes are removed, in one transaction.
-- The record must be a deletion that names the session; nothing else removes a record.
create function end_journal(
  p_session text, p_instance text, p_at_seq bigint,
  p_home bigint, p_seq bigint, p_home_mac bytea, p_epoch bigint, p_home_lines bytea[],
  p_new_mac bytea, p_home_at bigint, p_segment int, p_segment_seq bigint,
  p_ahead_ms bigint, p_timeline text
) returns table (outcome text, seq bigint, mac bytea, epoch bigint, suffix bytea[])
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
  a record; h head; said json; js bigint[];
begin
  said := convert_from(p_home_lines[cardinality(p_home_lines)], 'UTF8')::json;
  if said ->> 'type' is distinct from 'session_deleted'
    or said -> 'body' ->> 'session' is distinct from p_session
    or said -> 'body' ->> 'instance' is distinct from p_instance then
    raise exception using errcode = 'HF006', message = 'the home''s record is not this deletion';
  end if;
  select * into a from append_one(p_home, p_seq, p_home_mac, p_epoch, null, p_home_lines, p_new_mac,
    p_home_at, null, p_segment, p_segment_seq, p_ahead_ms, p_timeline);
  if a.outcome = 'k' then
    select * into h from head where session = p_session and instance = p_instance for update;
    if found and p_at_seq is not null and h.seq <> p_at_seq then
      raise exception using errcode = 'HF005', message = 'the session was written to meanwhile';
    end if;
    select array_agg(head.journal) into js from head
      where head.session = p_session and head.journal <> p_home;
    delete from record r where r.journal = any (js);
    delete from segment g where g.journal = any (js);
    delete from quarantine q where q.journal = any (js);
    delete from output t where t.journal = any (js);
    delete from snapshot s where s.journal = any (js);
    delete from moved m where m.journal = any (js);
    delete from head where head.journal = any (js);
  end if;
  return query select a.outcome, a.seq, a.mac, a.epoch, a.suffix;
end $$;

create function seal_journal(p_journal bigint) returns void
language sql security definer set search_path from current as $$
  update head set sealed = true where journal = p_journal and not sealed
$$;

-- A claim is a higher epoch and a random token. It stands while its process has a lease.
create function claim_journal(p_journal bigint, p_incarnation uuid, p_again boolean)
returns table (outcome "char", epoch bigint, claim uuid, driver uuid)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
  h head; t timestamptz := clock_timestamp();
begin
  perform bound_wait();
  select * into h from head where journal = p_journal for no key update;
  if not found or h.ended then
    return query select 'g'::"char", null::bigint, null::uuid, null::uuid;
  elsif h.sealed then
    return query select 's'::"char", null::bigint, null::uuid, null::uuid;
  elsif not exists (
    select 1 from process p where p.incarnation = p_incarnation and p.lease_until > t) then
    return query select 'l'::"char", null::bigint, null::uuid, null::uuid;
  elsif h.driver is not null and not (p_again and h.driver = p_incarnation) and exists (
    select 1 from process p where p.incarnation = h.driver and p.lease_until > t) then
    return query select 'b'::"char", null::bigint, null::uuid, h.driver;
  else
    return query update head set epoch = h.epoch + 1, claim = gen_random_uuid(),
      driver = p_incarnation where journal = p_journal
      returning 'k'::"char", head.epoch, head.claim, head.driver;
  end if;
end $$;

create function release_claim(p_journal bigint, p_claim uuid) returns void
language sql security definer set search_path from current as $$
  update head set driver = null, claim = null where journal = p_journal and claim = p_claim
$$;

-- Keep the lease of a process. End the leases that are over, and return the sessions that they
-- leave without a driver.
create function keep_lease(
  p_incarnation uuid, p_node uuid, p_machine text, p_pid int, p_start_time text, p_seconds float8
) returns table (session text)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
  longest interval := make_interval(secs => greatest(p_seconds, 30));
begin
  insert into process (incarnation, node, machine, pid, start_time, lease_until)
    values (p_incarnation, p_node, p_machine, p_pid, p_start_time,
      clock_timestamp() + make_interval(secs => p_seconds))
    on conflict (incarnation) do update set lease_until = excluded.lease_until;
  -- The clock was set back: nobody has a lease for longer than one is given. A process that lives
  -- keeps its own again before that is over.
  update process p set lease_until = clock_timestamp() + longest
    where p.incarnation in (select q.incarnation from process q
      where q.lease_until > clock_timestamp() + longest for update skip locked);
  update node set seen_at = clock_timestamp() where node = p_node;
  perform sweep_moved();
  -- A process that renews its lease just now holds its row, and is neither waited for nor ended.
  return query select e.session from (select q.incarnation from process q
      where q.lease_until < clock_timestamp() for update skip locked) p,
    end_process(p.incarnation) e;
end $$;

-- Forget the sessions that moved over two minutes ago, if the index knows their last record. A node
-- that looks every second has seen them.
create function sweep_moved() returns void
language sql security definer set search_path from current as $$
  delete from moved where listed >= seq and at < clock_timestamp() - interval '2 minutes'
$$;

-- The process is known to be gone: its lease is over, its machine says so, or it ended itself.
create function end_process(p_incarnation uuid) returns table (session text)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
begin
  delete from process where incarnation = p_incarnation;
  perform 1 from head where driver = p_incarnation order by journal for no key update;
  return query update head set driver = null, claim = null where driver = p_incarnation
    returning head.session;
end $$;

create function keep_quarantine(p_journal bigint, p_kind text, p_payload bytea) returns bigint
language sql security definer set search_path from current as $$
  insert into quarantine (journal, kind, payload) values (p_journal, p_kind, p_payload)
  returning item
$$;

create function keep_output(p_journal bigint, p_digest text, p_data bytea) returns void
language sql security definer set search_path from current as $$
  insert into output (journal, digest, data) values (p_journal, p_digest, p_data)
  on conflict (journal, digest) do update set data = excluded.data, kept_at = excluded.kept_at
$$;

-- Remove outputs and quarantined items by age. A journal is never shortened: it names an output that
-- was removed by its digest. Nothing of the last hour is removed, whatever a node's clock says.
create function forget_outputs(p_before timestamptz, p_journals bigint[], p_digests text[])
returns bigint
language sql security definer set search_path from current as $$
  with gone as (delete from output o using unnest(p_journals, p_digests) as g (journal, digest)
    where o.journal = g.journal and o.digest = g.digest
      and o.kept_at < least(p_before, clock_timestamp() - interval '1 hour') returning 1)
  select count(*) from gone
$$;

create function forget_quarantine(p_before timestamptz, p_items bigint[]) returns bigint
language sql security definer set search_path from current as $$
  with gone as (delete from quarantine q where q.item = any (p_items)
      and q.kept_at < least(p_before, clock_timestamp() - interval '1 hour') returning 1)
  select count(*) from gone
$$;

create function keep_snapshot(p_journal bigint, p_data bytea) returns void
language sql security definer set search_path from current as $$
  select write_cache();
  insert into snapshot (journal, data) values (p_journal, p_data)
  on conflict (journal) do update set data = excluded.data
$$;

-- Take a node's place: it has compared its anchors with this era. Return the nodes that have not.
create function join_node(
  p_node uuid, p_machine text, p_host text, p_version text, p_era uuid, p_key_ids text[]
) returns table (node uuid, host text)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
begin
  insert into node (node, machine, host, version, reconciled, key_ids)
    values (p_node, p_machine, p_host, p_version, p_era::text, p_key_ids)
    on conflict (node) do update set machine = excluded.machine, host = excluded.host,
      version = excluded.version, reconciled = excluded.reconciled, key_ids = excluded.key_ids,
      seen_at = clock_timestamp();
  return query select n.node, n.host from node n
    where n.reconciled <> p_era::text order by n.node;
end $$;

-- A person accepts that this node will not come back.
create function accept_node(p_node uuid) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  perform end_process(incarnation) from process where node = p_node;
  delete from node where node = p_node;
  return found;
end $$;

create function declare_era(p_id uuid, p_number bigint, p_system text, p_timeline text)
returns void
language sql security definer set search_path from current as $$
  update era set id = p_id, number = p_number, system = p_system, timeline = p_timeline
  where number < p_number
$$;

-- Hold the head's row until the end of the transaction. The records are read by the next statement:
-- a statement that locks and joins would answer from two snapshots.
create function lock_head(p_journal bigint) returns table (seq bigint, epoch bigint)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
begin
  perform bound_wait();
  return query select h.seq, h.epoch from head h where h.journal = p_journal for no key update;
end $$;

-- Fill an empty schema from a backup. Refused once the schema has a home: an era is declared last.
create function refuse_home() returns void
language plpgsql set search_path from current as $$
begin
  if exists (select 1 from era) then
    raise exception using errcode = 'HF007', message = 'the schema has a home already';
  end if;
end $$;

create function begin_load() returns void
language plpgsql security definer set search_path from current as $$
begin
  perform refuse_home();
  delete from record;
  delete from segment;
  delete from quarantine;
  delete from output;
  delete from moved;
  delete from head;
end $$;

create function load_journal(
  p_session text, p_instance text, p_seq bigint, p_mac bytea, p_at bigint, p_epoch bigint,
  p_numbers int[], p_first_seqs bigint[], p_ended boolean
) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  j bigint;
begin
  perform refuse_home();
  insert into head (session, instance, seq, mac, at, segment_seq, epoch, ended)
    values (p_session, p_instance, p_seq, p_mac, p_at,
      p_first_seqs[cardinality(p_first_seqs)], p_epoch, p_ended)
    returning journal into j;
  insert into segment (journal, number, first_seq)
    select j, s.number, s.first_seq from unnest(p_numbers, p_first_seqs) as s (number, first_seq);
  insert into moved (journal, seq) values (j, p_seq);
  return j;
end $$;

create function load_lines(p_journal bigint, p_first_seq bigint, p_lines bytea[]) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform refuse_home();
  insert into record (journal, seq, line)
    select p_journal, p_first_seq + i - 1, p_lines[i]
    from generate_series(1, cardinality(p_lines)) i;
end $$;

create function end_load(p_home bigint) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform refuse_home();
  update head set ended = false where journal = p_home;
  insert into era (id, number, system, timeline) values (gen_random_uuid(), 1,
    (select system_identifier from pg_control_system())::text, timeline());
end $$;

-- Index, search and memory. Each row carries a mac that the node checks; the columns beside it only
-- help to find a row. Words are keyed digests: the database learns no word of a memory.

create table standing (
  session text collate "C" primary key,
  instance text collate "C" not null,
  seq bigint not null,
  owes bigint not null,
  waiting bigint not null,
  expires_at bigint not null,
  remind_at bigint not null,
  running bigint not null,
  awaits bytea not null,
  rest bytea not null,
  prompts bytea not null,
  mac bytea not null
);
create index standing_waiting on standing (session) where waiting > 0;
create index standing_owing on standing (session) where owes > 0;
create index standing_running on standing (session) where running > 0;
create index standing_awaiting on standing (session) where octet_length(awaits) > 0;
create index standing_expiring on standing (expires_at, session) where expires_at > 0;
create index standing_reminding on standing (remind_at, session) where remind_at > 0;

-- Which session a prompt or a job belongs to, for good.
create table belongs (
  approval text collate "C" primary key,
  session text collate "C" not null,
  mac bytea not null
);
create index belongs_session on belongs (session);

create table said (
  id bigint generated always as identity primary key,
  session text collate "C" not null,
  instance text collate "C" not null,
  seq bigint not null,
  turn text not null,
  at bigint not null,
  words bigint[] not null,
  body bytea not null,
  mac bytea not null,
  unique (session, instance, seq)
);
create index said_turn on said (session, turn);
create index said_at on said (at, id);
create index said_words on said using gin (words);

-- The last record of each session that `said` contains.
create table said_through (
  session text collate "C" primary key,
  instance text collate "C" not null,
  seq bigint not null,
  mac bytea not null
);

create table memory (
  n bigint generated always as identity unique,
  id text collate "C" primary key,
  boundary text collate "C" not null,
  generation int not null,
  words bigint[] not null,
  body bytea not null,
  mac bytea not null
);
create index memory_words on memory using gin (words);

-- How many items and words each boundary holds, and how many items hold a word.
create table memory_size (
  boundary text collate "C" primary key,
  items bigint not null,
  words bigint not null
);
create table spread (
  digest bigint primary key,
  items bigint not null
);

-- Put a row, unless the present one is of the same instance and newer. Return whether it was put.
create function put_standing(
  p_session text, p_instance text, p_seq bigint, p_owes bigint, p_waiting bigint,
  p_expires_at bigint, p_remind_at bigint, p_running bigint, p_awaits bytea, p_rest bytea,
  p_prompts bytea,
  p_mac bytea, p_is_forced boolean, p_approvals text[], p_macs bytea[]
) returns boolean
language plpgsql security definer set search_path from current as $$
declare
  is_put boolean;
begin
  perform write_cache();
  insert into standing as old values (p_session, p_instance, p_seq, p_owes, p_waiting, p_expires_at,
      p_remind_at, p_running, p_awaits, p_rest, p_prompts, p_mac)
    on conflict (session) do update set instance = excluded.instance, seq = excluded.seq,
      owes = excluded.owes, waiting = excluded.waiting, expires_at = excluded.expires_at,
      remind_at = excluded.remind_at, running = excluded.running, awaits = excluded.awaits,
      rest = excluded.rest,
      prompts = excluded.prompts, mac = excluded.mac
    where p_is_forced or old.instance <> excluded.instance or old.seq <= excluded.seq;
  is_put := found;
  if is_put then
    -- The head moves on meanwhile: this says only what the row knows.
    update moved m set listed = p_seq from head h where h.session = p_session
      and h.instance = p_instance and m.journal = h.journal and m.listed < p_seq;
  end if;
  perform put_belongs(p_session, p_approvals, p_macs);
  return is_put;
end $$;

create function put_belongs(p_session text, p_approvals text[], p_macs bytea[]) returns void
language sql security definer set search_path from current as $$
  insert into belongs as old (approval, session, mac)
    select distinct on (given.approval) given.approval, p_session, given.mac
    from unnest(p_approvals, p_macs) as given (approval, mac) order by given.approval
    on conflict (approval) do update set session = excluded.session, mac = excluded.mac
    where (old.session, old.mac) is distinct from (excluded.session, excluded.mac)
$$;

create function forget_standing(p_session text) returns void
language sql security definer set search_path from current as $$
  delete from standing where session = p_session;
  delete from belongs where session = p_session;
  insert into moved as old (journal, seq)
    select h.journal, h.seq from head h where h.session = p_session and not h.ended
    on conflict (journal) do update set listed = 0
$$;

-- Add text of a session up to record p_seq. Two nodes may add the same text: it is kept once.
create function add_said(
  p_session text, p_instance text, p_seq bigint, p_mac bytea, p_is_new boolean,
  p_seqs bigint[], p_turns text[], p_ats bigint[], p_words text[], p_bodies bytea[], p_macs bytea[]
) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform write_cache();
  if p_is_new then
    delete from said where session = p_session;
    delete from said_through where session = p_session;
  end if;
  insert into said (session, instance, seq, turn, at, words, body, mac)
    select p_session, p_instance, g.seq, g.turn, g.at, g.words::bigint[], g.body, g.mac
    from unnest(p_seqs, p_turns, p_ats, p_words, p_bodies, p_macs)
      as g (seq, turn, at, words, body, mac)
    on conflict (session, instance, seq) do update set words = excluded.words,
      body = excluded.body, mac = excluded.mac;
  insert into said_through as old values (p_session, p_instance, p_seq, p_mac)
    on conflict (session) do update
      set instance = excluded.instance, seq = excluded.seq, mac = excluded.mac
      where old.instance <> excluded.instance or old.seq <= excluded.seq;
end $$;

create function forget_said(p_session text) returns void
language sql security definer set search_path from current as $$
  delete from said where session = p_session;
  delete from said_through where session = p_session
$$;

-- Keep an item. Outcomes: k kept, e it exists already, t the boundary is full.
create function add_memory(
  p_id text, p_boundary text, p_generation int, p_words bigint[], p_body bytea, p_mac bytea,
  p_items_max bigint
) returns "char"
language plpgsql security definer set search_path from current as $$
declare
  held bigint;
begin
  insert into memory_size (boundary, items, words) values (p_boundary, 0, 0)
    on conflict do nothing;
  select items into held from memory_size where boundary = p_boundary for update;
  if exists (select 1 from memory where id = p_id) then
    return 'e';
  end if;
  if held >= p_items_max then
    return 't';
  end if;
  insert into memory (id, boundary, generation, words, body, mac)
    values (p_id, p_boundary, p_generation, p_words, p_body, p_mac) on conflict (id) do nothing;
  if not found then
    return 'e';
  end if;
  update memory_size set items = items + 1, words = words + cardinality(p_words)
    where boundary = p_boundary;
  insert into spread as old select w, 1 from unnest(p_words) w order by w
    on conflict (digest) do update set items = old.items + 1;
  return 'k';
end $$;

create function forget_memory(p_id text) returns boolean
language plpgsql security definer set search_path from current as $$
declare
  gone memory;
begin
  delete from memory where id = p_id returning * into gone;
  if not found then
    return false;
  end if;
  update memory_size set items = items - 1, words = words - cardinality(gone.words)
    where boundary = gone.boundary;
  update spread set items = items - 1 where digest = any (gone.words);
  return true;
end $$;

#!/usr/bin/python3
"""Checks a cluster from outside: sends through a driver, reads through SQL, and keeps books of its own.

It knows nothing of shard's tables. Sessions at all nodes tell, ask, and send numbered events; some messages
are made to fail and are redriven. Meanwhile servers are killed, workers frozen and terminated, links cut,
shards moved, nodes emptied, a node leaves and joins anew, owners change their tables and functions,
and a type comes and goes.
After each round everything heals, and within PATIENCE seconds each entity must be where the books say:
nothing lost, nothing twice, nothing out of order, nothing standing still.

usage: check.py --bindir DIR --dir DIR [--seconds N] [--seed N] [--round N] [--only FAULT,...] [--rate N]
where DIR is the folder of programs of a PostgreSQL with shard, and one for the servers; faults are
kill freeze terminate cut move evacuate fourth owner guest fail redrive.

Prints a line for each fault and a verdict for each round; exit status 1 after the first violation, with what
is wrong, shard_health() of all nodes and the folder of the servers, which are left as they are (stopped).
"""
import argparse
import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import psycopg2
import psycopg2.errors

PATIENCE = 60
PAY, GAMES, REGISTERS, FRAGILE = 200, 200, 20, 60

SCHEMA = """
CREATE TABLE progress (session int PRIMARY KEY, done int8 NOT NULL);
CREATE TABLE closed (one int);
CREATE FUNCTION pay(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    last int8 := coalesce((state->>(message->>'s'))::int8, 0);
BEGIN
    IF message ? 'look' THEN RETURN state; END IF;
    IF (message->>'c')::int8 <> last + 1 THEN
        RETURN coalesce(state, '{}') || jsonb_build_object('bad', format('%s after %s of session %s', message->>'c', last, message->>'s'));
    END IF;
    RETURN coalesce(state, '{}') || jsonb_build_object(message->>'s', (message->>'c')::int8);
END $$;
CREATE FUNCTION game(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'look' THEN RETURN state; END IF;
    IF (message->>'n')::int8 <> coalesce((state->>'n')::int8, 0) + 1 THEN
        RETURN coalesce(state, '{}') || jsonb_build_object('bad', format('%s after %s', message->>'n', state->>'n'));
    END IF;
    RETURN coalesce(state, '{}') || jsonb_build_object('n', (message->>'n')::int8);
END $$;
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'n')::int8;
CREATE FUNCTION register(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN CASE WHEN message ? 'look' THEN state ELSE to_jsonb(coalesce(state::int8, 0) + 1) END;
CREATE FUNCTION fragile(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'look' THEN RETURN state; END IF;
    IF EXISTS (SELECT FROM public.closed) THEN RAISE EXCEPTION 'closed' USING ERRCODE = 'check_violation'; END IF;
    RETURN coalesce(state, '[]') || (message->'id');
END $$;
CREATE FUNCTION guest(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN to_jsonb(coalesce(state::int8, 0) + 1);
"""

START = """
SELECT shard_start('pay', 'pay', number_of_shards => 48);
SELECT shard_start('game', 'game', number_of_shards => 48, ordered_by => 'number_of', ordered_from => 1, ordered_timeout => '1 h', ordered_window => 100000);
SELECT shard_start('register', 'register', number_of_shards => 16);
SELECT shard_start('fragile', 'fragile', number_of_shards => 16, max_attempts => 1);
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Proxies:
    """A TCP proxy before each node; a node that is cut is reached by no other node."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.cut, self.open = set(), {}
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def add(self, name, port):
        listen = free_port()
        self.open[name] = set()
        asyncio.run_coroutine_threadsafe(self._serve(name, listen, port), self.loop).result()
        return listen

    async def _serve(self, name, listen, port):
        await asyncio.start_server(lambda r, w: self._connected(name, port, r, w), "127.0.0.1", listen)

    async def _connected(self, name, port, reader, writer):
        if name in self.cut:
            writer.close()
            return
        try:
            back, there = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        pair = (writer, there)
        self.open[name].add(pair)
        await asyncio.gather(self._pump(reader, there), self._pump(back, writer))
        self.open[name].discard(pair)

    async def _pump(self, reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    def set_cut(self, name, on):
        def act():
            (self.cut.add if on else self.cut.discard)(name)
            if on:
                for pair in self.open[name]:
                    for writer in pair:
                        writer.transport.abort()
        self.loop.call_soon_threadsafe(act)


class Node:
    def __init__(self, bed, name):
        self.bed, self.name, self.port = bed, name, free_port()
        self.data = os.path.join(bed.dir, name)
        self.proxy = bed.proxies.add(name, self.port)
        self.member = False
        run([bed.bin("initdb"), "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"])
        with open(os.path.join(self.data, "postgresql.conf"), "a") as conf:
            conf.write(f"""
shared_preload_libraries = 'shard'
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
port = {self.port}
max_worker_processes = 16
shared_buffers = 64MB
fsync = off
log_line_prefix = '%m [%p] %b %q%a '
shard.rebalance_interval = '3 s'
shard.recount_interval = '5 s'
shard.region_workers = {1 if name == 'first' else 2}
""")
        self.start()

    def start(self):
        """The system may need a moment to be rid of a server that was killed."""
        deadline = time.time() + 60
        while True:
            try:
                return run([self.bed.bin("pg_ctl"), "-D", self.data, "-w", "-t", "120", "-l", self.data + ".log", "start"])
            except RuntimeError:
                if time.time() > deadline:
                    raise
                time.sleep(0.5)

    def kill(self):
        with open(os.path.join(self.data, "postmaster.pid")) as f:
            postmaster = int(f.readline())
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(postmaster)], capture_output=True, text=True).stdout.split()
        for pid in [postmaster, *map(int, children)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        deadline = time.time() + 60
        while any(os.path.exists(f"/proc/{pid}/exe") and alive(pid) for pid in [postmaster, *map(int, children)]):
            if time.time() > deadline:
                raise RuntimeError("killed processes do not go")
            time.sleep(0.05)

    def connect(self, db="app", name="outside"):
        c = psycopg2.connect(host="127.0.0.1", port=self.port, user="postgres", dbname=db, connect_timeout=5, application_name=name)
        c.autocommit = True
        return c

    def address(self):
        return f"host=127.0.0.1 port={self.proxy} dbname=app user=link connect_timeout=5"

    def sql(self, query, args=None, db="app"):
        c = self.connect(db)
        try:
            with c.cursor() as cur:
                cur.execute(query, args)
                return cur.fetchall() if cur.description else []
        finally:
            c.close()

    def patient(self, query, seconds=120):
        """Again and again, as somebody who wants it done would."""
        deadline = time.time() + seconds
        while True:
            try:
                return self.sql(query)
            except psycopg2.Error as e:
                if time.time() > deadline:
                    raise RuntimeError(f"{self.name}: {query}: {e}") from e
                time.sleep(0.3)

    def make(self):
        self.sql("DROP DATABASE IF EXISTS app WITH (FORCE)", db="postgres")
        self.sql("CREATE DATABASE app", db="postgres")
        self.patient("DO $$ BEGIN CREATE ROLE link LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        self.patient("CREATE EXTENSION IF NOT EXISTS shard; SELECT shard_allow_peer('link')")
        self.sql(SCHEMA)

    def worker(self):
        rows = self.sql("SELECT pid FROM pg_stat_activity WHERE datname = 'app' AND backend_type = 'shard region'")
        return random.choice(rows)[0] if rows else None


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}")


class Books:
    def __init__(self):
        self.lock = threading.Lock()
        self.pay = {}        # (entity, session) -> messages that are committed
        self.issued = [0] * GAMES   # numbers of each game that were given to a sender, which sends them for sure
        self.registers = [[0, 0] for _ in range(REGISTERS)]  # surely done, maybe done
        self.fragile = [set() for _ in range(FRAGILE)]
        self.next_id = 0


class Session(threading.Thread):
    """One client at one node. A transaction whose COMMIT was not answered is looked up in table progress."""

    def __init__(self, bed, node, number):
        super().__init__(daemon=True)
        self.bed, self.node, self.number = bed, node, number
        self.done = 0
        self.counts = {}
        self.later = []  # (when, game, number): held back, so that higher ones wait for them
        self.random = random.Random(bed.random.random())
        self.connection = None
        self.error = None

    def run(self):
        try:
            while self.bed.sending.is_set() and self.node.member:
                if self.random.random() < 0.1:
                    self.ask()
                else:
                    self.transaction()
                time.sleep(self.random.random() * 2 / self.bed.rate)
            self.transaction(last=True)
        except Exception as e:  # the checker itself is wrong: said at the end of the round
            self.error = repr(e)
        finally:
            if self.connection is not None:
                self.connection.close()

    def cursor(self):
        while self.connection is None or self.connection.closed:
            try:
                self.connection = self.node.connect(name="session")
                self.connection.autocommit = False
            except psycopg2.Error:
                time.sleep(0.2)
        return self.connection.cursor()

    def transaction(self, last=False):
        now = time.time()
        pay, fragile = [], []
        games = [(game, n) for when, game, n in self.later if last or when <= now]
        self.later = [] if last else [held for held in self.later if held[0] > now]
        for _ in range(self.random.randint(1, 6)):
            entity = self.random.randrange(PAY)
            self.counts[entity] = self.counts.get(entity, 0) + 1
            pay.append((entity, self.counts[entity]))
        with self.bed.books.lock:
            for _ in range(self.random.randint(1, 6)):
                game = self.random.randrange(GAMES)
                self.bed.books.issued[game] += 1
                if last or self.random.random() < 0.8:
                    games.append((game, self.bed.books.issued[game]))
                else:
                    self.later.append((now + self.random.random() * 3, game, self.bed.books.issued[game]))
            if self.random.random() < 0.3:
                self.bed.books.next_id += 1
                fragile.append((self.random.randrange(FRAGILE), self.bed.books.next_id))
        self.random.shuffle(games)
        while not self.attempt(pay, games, fragile):
            time.sleep(0.1)
        self.done += 1
        with self.bed.books.lock:
            for entity, c in pay:
                self.bed.books.pay[entity, self.number] = c
            for entity, identity in fragile:
                self.bed.books.fragile[entity].add(identity)

    def attempt(self, pay, games, fragile):
        """True: committed, now or at an earlier attempt."""
        try:
            cur = self.cursor()
            cur.execute("SELECT done FROM progress WHERE session = %s", (self.number,))
            row = cur.fetchone()
            if (row[0] if row else 0) > self.done:
                self.connection.commit()
                return True
            cur.execute("INSERT INTO progress VALUES (%s, 1) ON CONFLICT (session) DO UPDATE SET done = progress.done + 1", (self.number,))
            if self.random.random() < 0.1:
                cur.execute("SAVEPOINT s")
                cur.execute("SELECT shard_tell('pay', 'p0', '{\"s\": \"never\", \"c\": 1}')")
                cur.execute("ROLLBACK TO s")
            for entity, c in pay:
                cur.execute("SELECT shard_tell('pay', %s, jsonb_build_object('s', %s::text, 'c', %s::int8))", (f"p{entity}", str(self.number), c))
            for game, n in games:
                cur.execute("SELECT shard_tell('game', %s, jsonb_build_object('n', %s::int8))", (f"g{game}", n))
            for entity, identity in fragile:
                cur.execute("SELECT shard_tell('fragile', %s, jsonb_build_object('id', %s::int8))", (f"f{entity}", identity))
            self.connection.commit()
            return True
        except psycopg2.Error as e:
            if self.connection is not None and not self.connection.closed:
                try:
                    self.connection.rollback()
                    return False
                except psycopg2.Error:
                    pass
            self.connection = None
            return False

    def ask(self):
        register = self.random.randrange(REGISTERS)
        with self.bed.books.lock:
            self.bed.books.registers[register][1] += 1
        try:
            cur = self.cursor()
            self.connection.autocommit = True
            cur.execute("SELECT shard_ask('register', %s, '{}', '3 s')", (f"r{register}",))
            with self.bed.books.lock:
                self.bed.books.registers[register][0] += 1
        except psycopg2.Error:
            pass
        if self.connection is not None and not self.connection.closed:
            self.connection.autocommit = False


class Bed:
    def __init__(self, options):
        self.dir, self.bindir, self.rate = options.dir, options.bindir, options.rate
        self.random = random.Random(options.seed)
        self.only = options.only.split(",") if options.only else None
        self.proxies, self.books = Proxies(), Books()
        self.sending = threading.Event()
        self.next_session, self.sessions, self.moves = 1, [], 0
        self.began = time.time()
        self.guest = False
        self.nodes = [Node(self, name) for name in ("first", "second", "third", "fourth")]
        for node in self.nodes[:3]:
            node.make()
        for node in self.nodes[1:3]:
            self.join(node)
        # behind a proxy an operator says where the first one is: a caller's word would be doubted
        self.nodes[0].patient(f"SELECT shard_set_address('{self.nodes[0].address()}')")
        self.nodes[0].member = True
        for node in self.nodes[:3]:
            node.patient(START)

    def bin(self, program):
        return os.path.join(self.bindir, program)

    def say(self, text):
        print(f"{time.time() - self.began:7.1f} s  {text}", flush=True)

    def join(self, node):
        seed = self.nodes[0].address()
        node.patient(f"SELECT shard_join('{seed}', '{node.address()}')")
        node.member = True

    def members(self):
        return [n for n in self.nodes if n.member]

    def begin_sessions(self, node):
        for _ in range(2):
            session = Session(self, node, self.next_session)
            self.next_session += 1
            self.sessions.append(session)
            session.start()

    # ---- faults: each does something, and returns what heals it, or None ----

    def fault_kill(self):
        node = self.random.choice(self.members())
        self.say(f"kill -9 of server {node.name}")
        node.kill()
        time.sleep(self.random.random() * 3)
        node.start()

    def fault_freeze(self):
        node = self.random.choice(self.members())
        pid = node.worker()
        if pid is None:
            return
        pause = self.random.random() * 5
        self.say(f"worker {pid} of {node.name} frozen for {pause:.1f} s")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(pause)
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def fault_terminate(self):
        node = self.random.choice(self.members())
        self.say(f"a worker of {node.name} terminated")
        pid = node.worker()
        if pid is not None:
            node.sql("SELECT pg_terminate_backend(%s)", (pid,))

    def fault_cut(self):
        node = self.random.choice(self.members())
        pause = self.random.random() * 8
        self.say(f"links to {node.name} cut for {pause:.1f} s")
        self.proxies.set_cut(node.name, True)
        time.sleep(pause)
        self.proxies.set_cut(node.name, False)

    def fault_move(self):
        node = self.random.choice(self.members())
        self.say(f"moves asked for at {node.name}")
        for _ in range(10):
            self.moves += len(node.sql("""
                SELECT shard_move(type_name, shard, m.node)
                FROM (SELECT * FROM shard_homes WHERE phase = 'stable' ORDER BY random() LIMIT 1) h,
                     LATERAL (SELECT node FROM shard_members WHERE status = 'up' AND node <> h.node ORDER BY random() LIMIT 1) m"""))

    def fault_evacuate(self):
        node = self.random.choice(self.members())
        self.say(f"shard_evacuate of {node.name}")
        node.sql("SELECT shard_evacuate(node) FROM shard_members WHERE status = 'up' AND dsn LIKE %s", (f"%port={node.proxy} %",))
        time.sleep(4)
        node.kill()
        node.start()

    def fault_fourth(self):
        node = self.nodes[3]
        if not node.member:
            self.say("fourth joins")
            node.make()
            self.join(node)
            node.patient(START)
            if self.sending.is_set():
                self.begin_sessions(node)
            return
        self.say("fourth leaves")
        node.member = False
        for session in [s for s in self.sessions if s.node is node]:
            session.join(120)
        # Dead letters stay where they are, as the documentation says.
        node.patient("SELECT shard_redrive(NULL, 'fragile')")
        deadline = time.time() + 180
        while not node.patient("SELECT shard_leave('20 s')")[0][0]:
            if time.time() > deadline:
                raise RuntimeError("the fourth node does not come to leave")
        self.say("fourth has left")

    def fault_guest(self):
        """A type comes and is sent to, or goes. What was sent to others neither stays nor comes back, whoever has left or restarts."""
        self.guest = not self.guest
        self.say("a type comes" if self.guest else "the type goes")
        for node in self.members():
            node.patient("SELECT shard_start('guest', 'guest', number_of_shards => 16)" if self.guest else
                         "SELECT shard_drop_type(type_name, force => true) FROM shard_types WHERE type_name = 'guest'")
        for node in self.members() if self.guest else []:
            node.patient("SELECT shard_tell('guest', 'x' || i, '{}') FROM generate_series(1, 200) i")

    def fault_owner(self):
        node = self.random.choice(self.members())
        what = self.random.choice([
            "VACUUM FULL shard_entity.pay", "VACUUM FULL shard_entity.game",
            "BEGIN; LOCK TABLE shard_entity.pay; SELECT pg_sleep(0.7); COMMIT",
            "BEGIN; SELECT count(*) FROM (SELECT FROM shard_entity.game FOR UPDATE) x; SELECT pg_sleep(0.7); ROLLBACK",
            "ALTER DATABASE app SET statement_timeout = '300 ms'; SELECT pg_sleep(1); ALTER DATABASE app RESET statement_timeout",
            SCHEMA[SCHEMA.index("CREATE FUNCTION pay"):SCHEMA.index("CREATE FUNCTION game")].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"),
            "ALTER TABLE shard_entity.register ADD COLUMN extra int; ALTER TABLE shard_entity.register DROP COLUMN extra",
            "CREATE INDEX CONCURRENTLY ON shard_entity.pay (entity_id)",
        ])
        self.say(f"owner at {node.name}: {' '.join(what.split())[:70]}")
        if "CONCURRENTLY" in what or "VACUUM" in what:
            node.sql(what)
        else:
            c = node.connect()
            try:
                with c.cursor() as cur:
                    for statement in ([what] if "$$" in what else what.split("; ")):
                        cur.execute(statement)
            finally:
                c.close()

    def fault_fail(self):
        node = self.random.choice(self.members())
        self.say(f"fragile ones fail at {node.name} for a while")
        node.sql("INSERT INTO closed VALUES (1)")
        time.sleep(self.random.random() * 3)
        node.sql("DELETE FROM closed")

    def fault_redrive(self):
        for node in self.members():
            node.sql("SELECT shard_redrive(NULL, 'fragile')")

    weights = {"kill": 3, "freeze": 3, "terminate": 2, "cut": 3, "move": 6, "evacuate": 1, "fourth": 2, "owner": 3, "guest": 2, "fail": 3, "redrive": 2}

    def faults(self, seconds):
        kinds = {k: w for k, w in self.weights.items() if self.only is None or k in self.only}
        end = time.time() + seconds
        while time.time() < end:
            if kinds:
                kind = self.random.choices(list(kinds), list(kinds.values()))[0]
                try:
                    getattr(self, "fault_" + kind)()
                except psycopg2.Error as e:
                    self.say(f"  ({str(e).splitlines()[0]})")
            time.sleep(self.random.random() * 2)

    def heal(self):
        for node in self.members():
            self.proxies.set_cut(node.name, False)
            node.patient("DELETE FROM closed")
            node.patient("ALTER DATABASE app RESET statement_timeout")
        if self.guest:
            self.fault_guest()
        self.sending.clear()
        for session in self.sessions:
            session.join(120)
            if session.is_alive():
                raise RuntimeError(f"session {session.number} at {session.node.name} does not come to its end")
            if session.error:
                raise RuntimeError(f"session {session.number}: {session.error}")
        self.sessions = []

    # ---- the verdict ----

    def look(self, cur, kind, entity):
        cur.execute("SELECT shard_ask(%s, %s, '{\"look\": 1}', '10 s')", (kind, entity))
        return cur.fetchone()[0]

    def wrong(self, node):
        """What is not as the books say, read through one node."""
        found = []
        c = node.connect()
        try:
            with c.cursor() as cur:
                for entity in range(PAY):
                    want = {str(s): n for (e, s), n in self.books.pay.items() if e == entity}
                    got = self.look(cur, "pay", f"p{entity}") or {}
                    if got != want:
                        found.append(f"pay p{entity}: " + ", ".join(f"{k}: {got.get(k)} of {want.get(k)}" for k in {**got, **want} if got.get(k) != want.get(k)))
                for game, n in enumerate(self.books.issued):
                    got = self.look(cur, "game", f"g{game}") or {}
                    if got != ({"n": n} if n else {}):
                        found.append(f"game g{game}: {got}, want {n}")
                for register, (sure, maybe) in enumerate(self.books.registers):
                    got = self.look(cur, "register", f"r{register}") or 0
                    if not sure <= got <= maybe:
                        found.append(f"register r{register}: {got}, not in {sure} .. {maybe}")
                for entity, want in enumerate(self.books.fragile):
                    got = self.look(cur, "fragile", f"f{entity}") or []
                    if len(got) != len(set(got)) or set(got) != want:
                        found.append(f"fragile f{entity}: missing {sorted(want - set(got))}, too many {sorted(set(got) - want)}, twice {sorted(i for i in set(got) if got.count(i) > 1)}")
        finally:
            c.close()
        return found

    def homes(self):
        """Entities whose state is at two nodes: what a shard leaves behind when it moves has to go."""
        found, at = [], {}
        for node in self.members():
            for kind in ("pay", "game", "register", "fragile"):
                for (entity,) in node.sql(f"SELECT entity_id FROM shard_entity.{kind}"):
                    if at.setdefault(entity, node.name) != node.name:
                        found.append(f"{kind} {entity}: state at {at[entity]} and at {node.name}")
        return found

    def given_up(self):
        """Only fragile messages may become dead letters: those of others would be sent again here, and forgotten."""
        return [f"dead letter at {node.name}: {row}" for node in self.members()
                for row in node.sql("SELECT type_name, entity_id, message, error FROM shard_dead_letters WHERE type_name <> 'fragile' LIMIT 3")]

    def unwell(self):
        """What shard_health() says although all is well; of moves that were given up it tells for some minutes."""
        return [f"shard_health() at {node.name}: {problem}" for node in self.members()
                for (problem,) in node.sql("SELECT unnest(problems) FROM shard_health()") if "could not be moved" not in problem]

    def undrained(self):
        return [f"shard_drain() at {node.name}: messages wait" for node in self.members() if not node.sql("SELECT shard_drain('5 s')")[0][0]]

    def judge(self):
        deadline, found = time.time() + PATIENCE, ["nothing was looked at"]
        began = time.time()
        while True:
            try:
                found = self.given_up()
                for node in self.members():
                    node.sql("SELECT shard_redrive(NULL, 'fragile')")
                found = found or self.wrong(self.random.choice(self.members())) or self.homes() or self.unwell() or self.undrained()
            except psycopg2.Error as e:
                found = [f"a look failed: {e}"]
            if not found or time.time() > deadline:
                break
            time.sleep(1)
        self.say(f"verdict after {time.time() - began:.1f} s: " + ("all as the books say" if not found else f"{len(found)} wrong"))
        for line in found[:30]:
            print("  " + line)
        return found

    def report(self):
        for node in self.nodes:
            for query in ("SELECT * FROM shard_health()", "SELECT node, status, reachable, coordinator FROM shard_members",
                          "SELECT place, count(*) FROM shard_inbox GROUP BY 1", "SELECT count(*), min(error) FROM shard_dead_letters",
                          "SELECT sum(recounts) FROM shard_stat_workers"):
                try:
                    print(f"{node.name}: {query}: {node.sql(query)}")
                except psycopg2.Error as e:
                    print(f"{node.name}: {query}: {e}")

    def counted_wrongly(self):
        """Where workers had to correct what they had counted: a defect, though nothing came of it."""
        return [n.name for n in self.members() if n.sql("SELECT sum(recounts) FROM shard_stat_workers")[0][0]]

    def stop(self):
        for node in self.nodes:
            subprocess.run([self.bin("pg_ctl"), "-D", node.data, "-m", "immediate", "stop"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bindir", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--round", type=int, default=40)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only")
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}", flush=True)
    bed = Bed(options)
    end, rounds, status = time.time() + options.seconds, 0, 1
    try:
        while time.time() < end:
            bed.sending.set()
            for node in bed.members():
                bed.begin_sessions(node)
            bed.faults(options.round)
            bed.heal()
            found = bed.judge()
            wrongly = bed.counted_wrongly()
            rounds += 1
            if found or wrongly:
                print(f"counted wrongly: {wrongly}")
                bed.report()
                print(f"servers: {bed.dir}")
                break
        else:
            status = 0
            if "move" in (bed.only or bed.weights) and bed.moves == 0 and options.seconds >= 60:
                print("no shard has moved, so nothing was shown")
                status = 1
    finally:
        bed.stop()
    with bed.books.lock:
        print(f"{rounds} rounds, {bed.moves} moves asked for, {sum(bed.books.pay.values())} payments, {sum(bed.books.issued)} events, "
              f"{sum(r[0] for r in bed.books.registers)} asks, {sum(map(len, bed.books.fragile))} fragile messages; seed {options.seed}")
    print(f"{rounds if status == 0 else rounds - 1} passed, {0 if status == 0 else 1} failed")
    return status


sys.exit(main())

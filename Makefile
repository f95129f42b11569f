# shard: durable, addressable, single-writer entities in PostgreSQL.
#
#   make, make install     build for the PostgreSQL of PG_CONFIG and install there
#   make demo              a throw-away server with a worked example; make demo-stop ends it
#   make check             every test; also check-matrix (15, 17, 18) and check-long (an hour)
#   make check-asan        tests with a server that is built with AddressSanitizer and its assertions
#   make lint, make indent, make bench; make bench SCENARIOS='M J O' only these
#   make house            how large and how tidy the source is, in figures; HOUSE_LISTS=1 names what stands out
#   make check-outside    a checker that knows nothing of the inside, for OUTSIDE_SECONDS (1800)
#   make sim-night        simulated histories for HOURS (8) on all cores
#   make fault-night      random faults in a real cluster for HOURS (8)
#   make fuzz-long        fuzzes decoders and nodes for HOURS (8)
#   make models           searches the models of the protocol; make models-long larger scopes
#
# Variables: PG_CONFIG; SHARD_ASSERTIONS=1 turns on our own assertions and fault points;
# MUTANT=name breaks the build on purpose, to prove that a test notices; WERROR= forgives warnings.

PG_CONFIG ?= pg_config

# These run on a machine that has no PostgreSQL yet, so they come before PGXS.
SCRIPTS_ONLY = check check-matrix check-long check-asan demo demo-stop bench lint indent house models models-long \
	sim-night fault-night fuzz-long check-outside

ifneq (,$(filter $(SCRIPTS_ONLY),$(MAKECMDGOALS)))

.PHONY: $(SCRIPTS_ONLY)
.NOTPARALLEL:

# The scripts start makes of their own, with flags of their own.
unexport MAKEFLAGS MFLAGS MAKELEVEL

check:
	@test/check.sh
check-matrix:
	@test/matrix.sh
check-asan:
	@test/asan.sh
check-long:
	@test/check.sh long all-sim all-mutants
check-outside:
	@OUTSIDE_SECONDS=$${OUTSIDE_SECONDS:-1800} CHECK_TIMEOUT=$$(($${OUTSIDE_SECONDS:-1800} * 2 + 600)) test/check.sh outside
demo:
	@test/demo/run.sh
demo-stop:
	@test/demo/stop.sh
bench:
	@bench/run.sh $(SCENARIOS)
lint:
	@test/lint.sh
indent:
	@test/lint.sh --indent
house:
	@perl test/house.pl
models:
	@test/setup.sh model && test/model/run.sh
models-long:
	@test/setup.sh model && test/model/run.sh --long
sim-night:
	@test/setup.sh build && test/sim/night.sh
fuzz-long:
	@test/setup.sh build fuzz && test/fuzz/run.sh --keep $$(($${HOURS:-8} * 3600))
fault-night:
	@test/check.sh night

else

EXTENSION = extension/shard
MODULE_big = shard
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(EXTENSION).control)

# Every folder is a room of the house: extension/README.md has the map.
SOURCES = $(sort $(wildcard extension/*.c extension/*/*.c extension/*/*/*.c))
OBJS = $(SOURCES:.c=.o)
ALL_HEADERS = $(wildcard extension/*.h extension/*/*.h extension/*/*/*.h)

# The install script is put together from its parts; upgrade steps are written by hand.
SCRIPT = $(EXTENSION)--$(EXTVERSION).sql
SCRIPT_PARTS = $(sort $(wildcard extension/install/[0-9][0-9]-*.sql))
DATA = $(wildcard extension/shard--*--*.sql)
DATA_built = $(SCRIPT)
EXTRA_CLEAN = .flags .mutant

# pg_regress runs them in this order, in one database.
REGRESS_TESTS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
ISOLATION_TESTS = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))

WERROR ?= -Werror
PG_CPPFLAGS = -Iextension -I$(libpq_srcdir)
PG_CFLAGS = -Wall -Wextra $(WERROR) \
	-Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
# Calls between our files go straight and not by a table that others might change: servers before 16 do not hide what a
# library keeps to itself.
PG_CFLAGS += -fno-semantic-interposition
SHLIB_LINK = $(libpq) $(if $(filter linux,$(PORTNAME)),-Wl$(comma)-Bsymbolic-functions)
comma := ,

ifdef SHARD_ASSERTIONS
PG_CPPFLAGS += -DSHARD_ASSERTIONS
endif

# For the scripts.
print-%:
	@echo $($*)

# The server's JIT never runs our code, so its bitcode would only cost time.
override with_llvm := no

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# PGXS of a packaged server tracks no dependencies: any header rebuilds all. So do other flags, another server
# version, and sources that come or go, through a file that changes only when they do. Where a private server's
# folder is does not matter (TREE, of test/private.sh): its headers are links to the same ones.
FLAGS := $(subst $(TREE),,$(CC) $(CPPFLAGS) $(CFLAGS) $(VERSION) $(OBJS))
.PHONY: FORCE
.flags: FORCE
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@
$(OBJS): $(ALL_HEADERS) Makefile .flags

# A build that is broken on purpose differs in the files that know how, and in no other: so it may begin
# as a copy of a sound one. It is no good for anything else: .mutant tells what was begun here.
SWITCH := $(if $(MUTANT),SHARD_MUTANT_$(MUTANT))
WAS := $(shell cat .mutant 2>/dev/null)
ifeq ($(filter clean print-%,$(MAKECMDGOALS)),)
ifneq ($(WAS),$(filter $(SWITCH),$(WAS)))
$(error objects of $(WAS) are here: "make clean" removes them)
endif
ifdef MUTANT
KNOWING := $(shell grep -lw $(SWITCH) $(SOURCES) $(ALL_HEADERS))
ifeq ($(KNOWING),)
$(error no source knows $(SWITCH))
endif
ifeq ($(WAS),)
$(shell echo $(SWITCH) > .mutant)
endif
MUTANT_OBJS := $(if $(filter %.h,$(KNOWING)),$(OBJS),$(KNOWING:.c=.o))
$(MUTANT_OBJS): override CPPFLAGS += -D$(SWITCH)
$(MUTANT_OBJS): .mutant
endif
endif

# Unqualified names in the script can only be the server's own.
$(SCRIPT): $(SCRIPT_PARTS) $(EXTENSION).control Makefile
	@{ \
		printf '%s\n' '\echo Use "CREATE EXTENSION shard" to load this file. \quit'; \
		printf '%s\n' 'SET LOCAL search_path TO pg_catalog, pg_temp;'; \
		cat $(SCRIPT_PARTS) /dev/null; \
	} > $@.new && mv $@.new $@

endif

# Only makes the environment and calls tox; tox.ini is the truth.
PYTHON ?= python3
VENV := .venv
TOX := $(VENV)/bin/tox
ARGS ?=
PART ?=

.PHONY: help test test-all docs through versions reproduce pipeline pythons clients mutants clean

help:
	@echo 'make test             lint, types, unit tests, the documents, and each public promise once on real brokers:'
	@echo '                      4 to 8 minutes on two cores, by their speed; the first time more, with about 1 GB to fetch'
	@echo 'make test-all         the same, the pages in a browser, and the rest of the integration tests: 40 minutes to two hours; PART=3/10: a part of it'
	@echo 'make reproduce        each known defect, the official client beside pulsar_ext: 6 minutes'
	@echo 'make docs             the site, in .site/html'
	@echo 'make through ARGS=mtls       every family of integration tests with mutual TLS; ARGS=cluster: on a cluster'
	@echo 'make versions         the client on each other supported version of Pulsar: hours; ARGS=4.0.7: on one'
	@echo 'make pipeline         archive a topic with Spark, replay it, and compare'
	@echo 'make pythons          unit and client tests on Python 3.11 to 3.14'
	@echo 'make clients ARGS=3.13.0      unit and core tests with that pulsar-client, or with the wheel at a path'
	@echo 'make mutants          small faults, of which the tests should find each: an hour or two'
	@echo 'make clean            remove the environments and what was built'

test: $(VENV)/ready
	@echo 'make test: ruff, mypy, pyright, the unit tests, the site, and the core of the integration tests on real brokers.'
	@echo 'It takes 4 to 8 minutes on two cores, by their speed; the first time more, with about 1 GB to fetch.'
	$(TOX) run -q -e lint,suite

test-all: $(if $(PART),,test) $(VENV)/ready
	@echo 'make test-all: the pages, and what make test leaves out of the integration tests$(if $(PART),; part $(PART): 4 to 10 minutes,: 40 minutes to two hours).'
	$(TOX) run -q -e suite -- pages rest $(if $(PART),--part $(PART)) $(ARGS)

docs: $(VENV)/ready
	$(TOX) run -q -e suite -- docs $(ARGS)

versions: $(VENV)/ready
	$(TOX) run -q -e suite -- versions $(ARGS)

reproduce pipeline through mutants: $(VENV)/ready
	$(TOX) run -q -e $@ -- $(ARGS)

pythons: $(VENV)/ready
	tests/pythons $(ARGS)

clients: $(VENV)/ready
	PULSAR_EXT_CLIENT='$(if $(wildcard $(ARGS)),$(abspath $(ARGS)),pulsar-client==$(ARGS))' $(TOX) run -q -e clients

$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11")'
	@$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing: apt-get install python3-venv"; exit 1; }
	$(VENV)/bin/pip install --quiet 'tox>=4.20' 'tox-uv>=1.20'
	@touch $@

clean:
	rm -rf $(VENV) .tox .site build dist

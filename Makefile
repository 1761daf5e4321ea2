# Only makes the environment and calls tox; tox.ini is the truth.
PYTHON ?= python3
VENV := .venv
ARGS ?=

.PHONY: test docs through reproduce pipeline pythons clean

test: $(VENV)/ready
	$(VENV)/bin/tox run -e lint,types,unit,docs,integration

docs: $(VENV)/ready
	$(VENV)/bin/tox run -q -e docs -- $(ARGS)

through: $(VENV)/ready
	$(VENV)/bin/tox run -q -e through -- $(ARGS)

reproduce: $(VENV)/ready
	$(VENV)/bin/tox run -q -e reproduce -- $(ARGS)

pipeline: $(VENV)/ready
	$(VENV)/bin/tox run -q -e pipeline -- $(ARGS)

pythons: $(VENV)/ready
	tests/pythons $(ARGS)

$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11")'
	@$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing: apt-get install python3-venv"; exit 1; }
	$(VENV)/bin/pip install --quiet 'tox>=4.20'
	@touch $@

clean:
	rm -rf $(VENV) .tox .site dist

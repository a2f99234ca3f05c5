#!/usr/bin/env bash
# Sets everything up in .venv/ and runs the course; see usage() or ./run_all.sh --help.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LOGS=$ROOT/build/logs
PY=$ROOT/.venv/bin/python
STAMP=$ROOT/.venv/installed-for

usage() {
    cat <<'TEXT'
usage: ./run_all.sh [COMMAND]

  (nothing), notebooks [NN ...]  the main job: every notebook (or those that start with NN), executed on the
                                 shipped model into build/notebooks/, then the short parity experiment
  student [OPTIONS] [NN ...]     the student edition in build/student/: the notebooks with exercises to fill in.
                                 What you have changed there is kept; --force makes NN anew and moves yours
                                 aside, --restore puts the solutions into what you have not answered
  lab [student] [OPTIONS]        JupyterLab in notebooks/, or in the student edition
  test                           ruff, pytest, the notebooks and the student edition as tests, the browser test
  parity [OPTIONS]               the whole parity experiment against Hugging Face transformers

  Layer offloading. On a GPU the model is Qwen3-8B's geometry with random weights (18 GB of main memory);
  without one it is tiny on an emulated device, in seconds. Results go to build/results/, or where --out says;
  a run that was cut short continues; COMMAND --help shows the options.
  mine [OPTIONS]                 this machine: ceilings, budget sweep, comparison, on the largest model that
                                 main memory holds
  offload-naive [OPTIONS]        two prompts, each layer copied when it is reached
  offload-prefetch [OPTIONS]     the same, copied while the layer before it is computed
  offload-compare [OPTIONS]      both on ten prompts, first tokens of long prompts, and accelerate
                                 (an H200: 20 minutes; --modes naive does a part)
  budget-sweep [OPTIONS]         more and more layers on the device, each beside limit and simulator

  Side by side with other engines, likewise; what is not installed is skipped (vLLM: tests/peers/README.md).
  baseline [OPTIONS]             Qwen3-1.7B, or tiny, all on the device: our two paths, Hugging Face, vLLM
  vllm-compare [OPTIONS]         1.7B and 8B on the device, 8B with streamed layers: ours and vLLM
                                 (an H200: 12 minutes; --parts minillm does a part)

  report [OPTIONS]               notebook 20, executed on data/results/, as build/report/minillm-report.html, and
                                 as .pdf where there is a Chromium; --as-stored does not execute it
  -h, --help                     this text

Each command first makes .venv/ and installs requirements.txt into it; unchanged, that takes no time.
PYTHON=/path/to/python3.12 ./run_all.sh   picks the Python (3.11 to 3.13) that .venv/ is made with.
TEXT
}

fail() {    # fail STATUS MESSAGE
    echo "run_all.sh: $2" >&2
    exit "$1"
}

# ---- set-up -------------------------------------------------------------------------------------

suitable() {    # a Python of a tested version that can make environments
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

find_python() {
    local candidate candidates=(python3 python3.13 python3.12 python3.11 python)
    if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
    for candidate in "${candidates[@]}"; do
        if suitable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail 1 "needs Python 3.11, 3.12 or 3.13 with its venv module, and found none as: ${candidates[*]}; install one (Debian, Ubuntu: python3 and python3-venv), or name it: PYTHON=/path/to/python3.12 ./run_all.sh"
}

# pip is silent without a terminal; on one, a single line shows its latest step.
quietly() {    # quietly LOG COMMAND...
    local log=$1 pid latest
    shift
    : >"$log"
    "$@" >>"$log" 2>&1 &
    pid=$!
    # shellcheck disable=SC2064
    trap "kill $pid 2>/dev/null || true" EXIT
    while [ -t 2 ] && kill -0 "$pid" 2>/dev/null; do
        latest=$(grep -E '^ *(Collecting|Downloading|Using cached|Installing|Building)' "$log" | tail -n 1 | tr -s ' ' | cut -c1-64 || true)
        printf '\r\033[K%4d s  %s' "$SECONDS" "$latest" >&2
        sleep 0.5
    done
    if [ -t 2 ]; then printf '\r\033[K' >&2; fi
    trap - EXIT
    wait "$pid"
}

install() {    # install PIP-ARGUMENTS...
    if ! quietly "$LOGS/pip.log" "$PY" -m pip install --disable-pip-version-check --no-input "$@"; then
        tail -n 8 "$LOGS/pip.log" >&2
        fail 1 "pip install $* failed; the whole log is in build/logs/pip.log"
    fi
}

wanted() {    # what the environment has to match: a moved checkout or a changed list installs again
    echo "$ROOT"
    cat "$ROOT/requirements.txt" "$ROOT/pyproject.toml"
}

set_up() {
    local python
    mkdir -p "$LOGS"
    if [ -x "$PY" ] && wanted | cmp -s - "$STAMP"; then return; fi
    if ! suitable "$PY"; then
        python=$(find_python)
        echo "Making .venv with $("$python" --version)" >&2
        "$python" -m venv --clear "$ROOT/.venv"
    fi
    echo "Installing requirements.txt into .venv (the first time: about 3 minutes, 2.4 GB; more with CUDA)" >&2
    install -r "$ROOT/requirements.txt"
    install --no-deps -e "$ROOT"
    wanted >"$STAMP"
    echo "Set up in $SECONDS s" >&2
}

chromium_found() {
    command -v chromium || command -v chromium-browser || command -v google-chrome
}

get_chromium() {
    if chromium_found >/dev/null; then return; fi
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "No Chromium here, and installing it needs root and apt-get: the browser test will be skipped" >&2
        return
    fi
    echo "Installing chromium for the browser test" >&2
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y chromium; } >"$LOGS/apt.log" 2>&1 ||
        echo "apt-get could not install chromium (build/logs/apt.log): the browser test will be skipped" >&2
}

# ---- steps --------------------------------------------------------------------------------------

SUMMARY=()
FAILED=0

record() {    # record NAME STATUS SECONDS [NOTE]
    local result=ok
    if [ "$2" != 0 ]; then
        result=FAILED
        FAILED=1
    fi
    SUMMARY+=("$(printf '%-36s %-8s %6d' "$1" "$result" "$3")${4:+   $4}")
}

step() {    # step NAME COMMAND...: output is shown
    local name=$1 status=0 began=$SECONDS
    shift
    echo "== $name"
    "$@" || status=$?
    record "$name" "$status" $((SECONDS - began))
}

logged_step() {    # logged_step NAME LOG COMMAND...: output goes to a file, shown when it fails
    local name=$1 log=$2 status=0 began=$SECONDS
    shift 2
    echo "== $name"
    "$@" >"$log" 2>&1 || status=$?
    if [ "$status" != 0 ]; then
        tail -n 30 "$log"
        echo "(the whole output: ${log#"$ROOT"/})"
    fi
    record "$name" "$status" $((SECONDS - began))
}

finish() {
    printf '\n%-36s %-8s %6s\n' step result seconds
    printf '%s\n' "${SUMMARY[@]}"
    exit "$FAILED"
}

# ---- commands -----------------------------------------------------------------------------------

note_contents() {    # note_contents NOTEBOOK: to the latest line of the summary
    local cells figures last=$((${#SUMMARY[@]} - 1))
    if [ ! -f "$1" ]; then return; fi
    cells=$(grep -c '"cell_type": "code"' "$1" || true)
    figures=$(grep -c '"image/png": ' "$1" || true)
    SUMMARY[last]+="   $cells code cells, $figures figures"
}

run_notebooks() {
    local notebook name prefix chosen=0 made=$ROOT/build/notebooks
    mkdir -p "$made"
    for notebook in "$ROOT"/notebooks/[0-9][0-9]_*.ipynb; do
        name=$(basename "$notebook" .ipynb)
        for prefix in "${@:-}"; do
            if [ "${name#"$prefix"}" = "$name" ] && [ -n "$prefix" ]; then continue; fi
            chosen=1
            rm -f "$made/$name.ipynb"    # what a failed run leaves must not be taken for its result
            logged_step "notebook $name" "$LOGS/$name.log" "$PY" -m experiments.execute --to "$made" "$notebook"
            note_contents "$made/$name.ipynb"
            break
        done
    done
    if [ "$chosen" = 0 ]; then fail 2 "no notebook starts with: $*"; fi
}

run_parity() {
    local status=0 began=$SECONDS log=$LOGS/parity.log met total
    echo "== parity, quick"
    "$PY" -m experiments.parity --quick | tee "$log" || status=$?
    met=$(grep -c ' yes$' "$log" || true)
    total=$((met + $(grep -c ' NO$' "$log" || true)))
    record "parity with transformers, quick" "$status" $((SECONDS - began)) "$met of $total checks met"
}

main_job() {
    run_notebooks "$@"
    run_parity
    echo
    echo "Executed notebooks: build/notebooks/. To work through them yourself: ./run_all.sh lab student"
    finish
}

run_tests() {
    get_chromium
    step "ruff check" "$PY" -m ruff check .
    step "ruff format" "$PY" -m ruff format --check .
    step "pytest" "$PY" -m pytest -q -rs -n auto --maxprocesses 4 -m "not browser and not student and not alone" tests
    step "pytest, timings" "$PY" -m pytest -q -m alone tests
    step "notebooks (nbval)" "$PY" -m pytest -q --nbval --nbval-sanitize-with tests/sanitize.cfg \
        --nbval-cell-timeout 300 notebooks
    step "student edition" "$PY" -m pytest -q -m student tests/test_student_runs.py
    step "browser" "$PY" -m pytest -q -rs -m browser tests/test_browser.py
    finish
}

run_lab() {
    local folder=$ROOT/notebooks
    if [ "${1:-}" = student ]; then
        shift
        folder=$ROOT/build/student
        if [ ! -d "$folder" ]; then "$PY" -m experiments.student; fi
    fi
    if [ "$(id -u)" = 0 ]; then set -- --allow-root "$@"; fi    # containers; the token still protects it
    exec "$PY" -m jupyterlab --ServerApp.root_dir="$folder" "$@"
}

none_left() {    # none_left COMMAND ARGUMENTS...: the command takes none
    if [ $# -gt 1 ]; then fail 2 "$1 takes no arguments, got: ${*:2}"; fi
}

command=${1:-notebooks}
if [ $# -gt 0 ]; then shift; fi
case $command in
    -h | --help) usage && exit 0 ;;
    notebooks | student | lab | parity | report | mine | offload-naive | offload-prefetch | offload-compare | budget-sweep | baseline | vllm-compare) ;;
    test) none_left "$command" "$@" ;;
    *) fail 2 "no command '$command'; there are notebooks (also with nothing), student, lab, test, parity, report, mine, offload-naive, offload-prefetch, offload-compare, budget-sweep, baseline, vllm-compare, --help" ;;
esac

cd "$ROOT"
set_up
# A bar appears only when something is slow, so a stored output with one would depend on the machine's load.
if [ "$command" != lab ]; then export TQDM_DISABLE=1; fi
case $command in
    notebooks) main_job "$@" ;;
    student) exec "$PY" -m experiments.student "$@" ;;
    test) run_tests ;;
    parity) exec "$PY" -m experiments.parity "$@" ;;
    report) exec "$PY" -m experiments.report "$@" ;;
    mine) exec "$PY" -m experiments.mine "$@" ;;
    offload-naive | offload-prefetch)
        exec "$PY" -m experiments.offload_compare --out build/results --modes "${command#offload-}" \
            --prompts 2 --new-tokens 32 "$@"
        ;;
    offload-compare) exec "$PY" -m experiments.offload_compare --out build/results "$@" ;;
    budget-sweep) exec "$PY" -m experiments.budget_sweep --out build/results "$@" ;;
    baseline) exec "$PY" -m experiments.baseline --out build/results "$@" ;;
    vllm-compare) exec "$PY" -m experiments.vllm_compare --out build/results "$@" ;;
    lab) run_lab "$@" ;;
esac

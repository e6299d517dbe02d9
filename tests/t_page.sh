#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The HTML page: what is in the file, and what a browser makes of it.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99

cat > job.ini <<'INI'
[model]
preset = llama3.2-1b
[parallel]
world_size = 16
tensor_model_parallel_size = 2
pipeline_model_parallel_size = 4
[train]
micro_batch_size = 1
global_batch_size = 16
seq_length = 2048
[precision]
bf16 = true
[optimizer]
use_distributed_optimizer = true
[device]
gpu = h100-80gb-sxm
reserved_outside_bytes = 2GiB
INI
sed 's/^reserved_outside_bytes.*/memory_bytes = 4GiB/' job.ini > oom.ini
evil='a</script><script>throw 1<!--&.ini'
evil=$(printf '%s' "$evil" | tr / -)
cp job.ini "$evil"

# ---- the file ----
expect "a page is written" 0 '^FITS' "$MBSIM" run job.ini --html job.html --json job.json
expect "a page of a job that does not fit" 3 '^OUT OF MEMORY' "$MBSIM" run oom.ini --html oom.html
expect "a page can go to standard output" 0 '^<!DOCTYPE html>$' "$MBSIM" run job.ini --html -
check "nothing is asked of the network" sh -c '! grep -E "(src|href)=|url\(|@import|fetch\(|XMLHttp" job.html |
  grep -v "href=\"#main\"" | grep -v "href=\"data:,\"" | grep -v "url(#"'
check "markup in a name stays text" sh -c '"$0" run --html evil.html --set "allocator.conf=" "$1" >/dev/null &&
  test "$(grep -o "<script" evil.html | wc -l)" = "$(grep -o "<script" job.html | wc -l)" &&
  test "$(grep -o "</script" evil.html | wc -l)" = "$(grep -o "</script" job.html | wc -l)" &&
  ! grep -q "1<!--" evil.html' "$MBSIM" "$evil"
expect "a page that cannot be written is an error" 1 'no-such-folder/job.html' \
  "$MBSIM" run job.ini --html no-such-folder/job.html
check "an old page stays when writing fails" sh -c 'echo old > keep.html &&
  ! (ulimit -f 8; "$0" run job.ini --html keep.html >/dev/null 2>&1) && grep -qx old keep.html' "$MBSIM"
check "64 GPUs with 64 kinds of rank stay below 3 MB" sh -c '
  "$0" run job.ini --set world_size=64 --set tensor_model_parallel_size=1 --set virtual_pipeline_model_parallel_size=4 \
    --set global_batch_size=1024 --set iterations=40 --html large.html >/dev/null && test "$(wc -c <large.html)" -lt 3000000' "$MBSIM"

# ---- pages of studies ----
{ cat job.ini; printf '[sweep]\npipeline_model_parallel_size = 1 2 4\nmicro_batch_size = 1 2\n'; } > sweep.ini
expect "a page of a sweep" 0 'layouts: ' "$MBSIM" sweep sweep.ini --csv rows.csv --html sweep.html
expect "the same from its rows" 0 'layouts: ' "$MBSIM" merge rows.csv --html merged.html
check "both know the same layouts" sh -c '
  grep "^{.*\"kind\":\"sweep\"" sweep.html | grep -o "\"axes\":.*" > a
  grep "^{.*\"kind\":\"sweep\"" merged.html | grep -o "\"axes\":.*" > b; test -s a && cmp a b'
expect "a page of two reports" 0 'Keys that differ' \
  "$MBSIM" diff job.ini job.ini --set-b micro_batch_size=2 --html diff.html --json diff.json
expect "a page of two reports on standard output" 0 '^<!DOCTYPE html>$' "$MBSIM" diff job.ini oom.ini --html -

# ---- the browser ----
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ]; then
  skip "the page in a browser" "no chromium"
  done_testing
fi

# dom PAGE WIDTH SCHEME: the page as it stands after its program has run; console in dom.err.
dom() {
  timeout -k 5 100 "$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
    --virtual-time-budget=5000 --window-size="$2,1000" --blink-settings="preferredColorScheme=$3" \
    --enable-logging=stderr --dump-dom "file://$work/$1" 2>dom.err
}
dom job.html 1280 1 > wide.dom
if ! grep -q '</html>' wide.dom; then
  skip "the page in a browser" "chromium does not start here"
  done_testing
fi
for view in "job.html 1280 1" "job.html 400 0" "oom.html 1280 0" "oom.html 400 1" "evil.html 1280 1" "large.html 400 0"; do
  # shellcheck disable=SC2086 # three words
  set -- $view
  dom "$1" "$2" "$3" > view.dom
  check "$1 at $2 pixels, scheme $3: the program runs to its end" grep -q 'data-ready="yes"' view.dom
  check "$1 at $2 pixels, scheme $3: nothing on the console" sh -c '! grep CONSOLE dom.err'
  check "$1 at $2 pixels, scheme $3: charts are drawn" sh -c '
    grep -q "data-category=\"parameters\"" view.dom && grep -q "class=\"pass\"" view.dom &&
    grep -q "class=\"gap\"" view.dom && grep -q "data-kind=\"backward\"" view.dom && grep -q "data-part=" view.dom'
done

for view in "sweep.html 1280 1" "sweep.html 400 0" "diff.html 1280 0" "diff.html 400 1"; do
  # shellcheck disable=SC2086 # three words
  set -- $view
  dom "$1" "$2" "$3" > view.dom
  check "$1 at $2 pixels, scheme $3: the program runs to its end" grep -q 'data-ready="yes"' view.dom
  check "$1 at $2 pixels, scheme $3: nothing on the console" sh -c '! grep CONSOLE dom.err'
  cp view.dom "${1%.html}.dom"
done
check "a dot a layout, and a front" sh -c '
  dots=$(grep -o "data-status=\"[^>]*" sweep.dom | cat) && n=$(grep -o " d=\"M[^\"]*\"[^>]*data-status" sweep.dom | grep -o "h0" | wc -l)
  test -n "$dots" && test "$n" = "$(($(wc -l <rows.csv) - 1))" && grep -q "class=\"reserved front\"" sweep.dom'
for key in allocated_bytes reserved_bytes device_used_bytes; do
  check "the page of two reports has the differences of $key" sh -c '
    grep -A3 "^    \"$0\"" diff.json | grep -o -- "[0-9-]*[0-9]" > numbers && test "$(wc -l <numbers)" -ge 3 &&
    for n in $(head -3 numbers); do grep -q -- "data-bytes=\"$n\"" diff.dom || exit 1; done' "$key"
done

# number KEY: the first one in the JSON report of the rank $rank.
number() {
  awk -v rank="$rank" -v key="\"$1\":" '
    $1 == "\"rank\":" { here = $2 + 0 == rank }
    here && $1 == key { sub(/,/, "", $2); print $2; exit }' job.json
}
for rank in 0 6 12; do
  dom "job.html#rank=$rank" 1280 1 > rank.dom
  check "rank $rank is shown" sh -c 'grep -q "id=\"chosen\" data-rank=\"$0\"" rank.dom' "$rank"
  for key in max_allocated_bytes max_reserved_bytes total_bytes; do
    value=$(number $key)
    check "rank $rank: $key is the one of the JSON report" \
      sh -c 'test -n "$0" && grep -q "data-bytes=\"$0\"" rank.dom' "$value"
  done
  check "rank $rank: the bar adds up to the device" sh -c '
    sum=$(grep -o "data-part=\"[0-9]*" rank.dom | tr -dc "0-9\n" | awk "{ s += \$1 } END { printf \"%.0f\", s }") &&
    test "$sum" = "$0"' "$(number total_bytes)"
  check "rank $rank: the timeline peaks at the reported peak" sh -c '
    grep -o "<circle class=\"dot\"[^>]*data-bytes=\"[0-9]*" rank.dom | head -1 | grep -q "data-bytes=\"$0\$"' \
    "$(number max_allocated_bytes)"
  grep -o 'data-part="[0-9]*' rank.dom > "parts.$rank"
  grep -o 'data-category="[^>]*' rank.dom > "areas.$rank"
done
# What a reader does: each script runs at the end of a copy of the page.
act() { # act PAGE WIDTH SCRIPT: DOM afterwards to act.dom
  { cat "$1"; printf '<script>%s</script>\n' "$3"; } >act.html
  dom act.html "$2" 1 >act.dom
}
act job.html 1280 'document.querySelector(".cell[data-rank=\"4\"]").click();'
check "choosing a cell shows its rank" grep -q 'id="chosen" data-rank="4"' act.dom
act job.html 1280 'const press = (on, key) => on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  press(document.querySelector(".cell"), "ArrowRight"); document.activeElement.click();
  press(document.querySelector("#timeline .chart"), "Home");'
check "arrow keys move over the grid, Enter chooses" grep -q 'id="chosen" data-rank="4"' act.dom
check "keys move along the timeline" grep -q 'At: .*operation 1 of ' act.dom
act sweep.html 1280 'document.querySelector("input[data-key=pipeline_model_parallel_size]").click();'
check "a filter leaves layouts out" sh -c '! grep -q "id=\"count\"[^>]*>6 of 6 layouts" act.dom && grep -q "id=\"count\"[^>]*>[1-9] of 6 layouts" act.dom'
for page in job oom sweep diff; do
  act $page.html 400 'document.body.dataset.wide = document.documentElement.scrollWidth > innerWidth ? "yes" : "no";'
  check "$page.html is no wider than a narrow window" grep -q 'data-wide="no"' act.dom
done
check "another rank has another bar" sh -c '! cmp -s parts.0 parts.6 && ! cmp -s parts.6 parts.12'
check "another rank has another timeline" sh -c '! cmp -s areas.0 areas.6 && ! cmp -s areas.6 areas.12'
done_testing

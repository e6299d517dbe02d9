// SPDX-License-Identifier: Apache-2.0
'use strict';
// The pipeline of one step: stages by time. All times are estimates.

const ROW = 26;
const SPAN_COLOURS = ['forward', 'backward', 'weight-grad', 'wait', 'grad-sync', 'optimizer-step', 'param-gather'];

function ms(ns, digits) {
  return fixed(ns / 1e6, digits === undefined ? 1 : digits) + ' ms';
}

function clockTiles(job) {
  const t = job.report.time;
  if (!t) return null;
  return [tile('Step, estimated', ms(t.step_ns, t.step_ns < 1e8 ? 2 : 0), percent(t.bubble_ns, t.step_ns) + ' of it waits for other stages'),
    tile('Throughput, estimated', short(t.tokens_per_s) + ' tokens/s', fixed(t.tflops_per_s, 0) + ' TFLOP/s a GPU, '
      + percent(t.mfu, 1) + ' of its peak')];
}

// Spans of one stage: { kind, chunk, microbatch, begin, end }.
function spansOf(list) {
  const spans = [];
  let at = 0;
  for (let i = 0; i < list.length; i += 5) {
    const begin = at + list[i + 3];
    at = begin + list[i + 4];
    spans.push({ kind: list[i], chunk: list[i + 1], microbatch: list[i + 2], begin, end: at });
  }
  return spans;
}

function spanWords(job, stage, s) {
  const kind = job.pipeline.kinds[s.kind];
  let text = 'stage ' + stage + ': ' + kind;
  if (s.kind < 4) text += ' of micro-batch ' + s.microbatch + (job.grid.vpp > 1 ? ', chunk ' + s.chunk : '');
  return text + ', ' + ms(s.end - s.begin, 2) + ', from ' + ms(s.begin, 2) + ' to ' + ms(s.end, 2);
}

// One path a kind; every other chunk lighter, so that chunks can be told apart.
function stageRow(job, spans, stage, x) {
  const paths = new Map();
  const texts = [];
  const y = stage * ROW + 2;
  for (const s of spans) {
    const a = x(s.begin);
    const b = x(s.end);
    if (b - a <= 0) continue;
    const light = s.kind < 3 && s.chunk % 2 === 1;
    const key = s.kind + (light ? ' light' : '');
    paths.set(key, (paths.get(key) || '') + 'M' + a + ' ' + y + 'H' + (b - a > 2.5 ? Math.round((b - 0.6) * 10) / 10 : b) + 'V' + (y + ROW - 4) + 'H' + a + 'Z');
    const label = String(s.microbatch);
    if (s.kind < 3 && b - a > 6 + 6 * label.length) {
      texts.push(sv('text', { class: 'on', x: Math.round((a + b) * 5) / 10, y: y + 15, 'text-anchor': 'middle' }, label));
    }
  }
  return [[...paths].map(([key, d]) => sv('path', { d, fill: colour(SPAN_COLOURS[parseInt(key, 10)]),
    opacity: key.endsWith('light') ? 0.72 : null, 'data-kind': job.pipeline.kinds[parseInt(key, 10)] })), texts];
}

// `wide`: room for the numbers of the passes; else the whole step in the width that there is.
function drawPipeline(job, host, stages, room, end) {
  const most = Math.max(...stages.map((s) => s.length));
  const width = host.wide ? Math.max(room, Math.min(8000, most * 24)) : room;
  const scale = (width - 12) / end;
  const x = (ns) => Math.round(ns * scale * 10) / 10;
  const bottom = stages.length * ROW + 4;
  const n = Math.max(2, Math.floor(width / 110));
  const axis = steps(end / 1e6, n).map((v) => [
    sv('line', { class: 'rule', x1: x(v * 1e6), x2: x(v * 1e6), y1: 0, y2: bottom }),
    sv('text', { x: x(v * 1e6), y: bottom + 12, 'text-anchor': v === 0 ? 'start' : 'middle' }, fixed(v, v < 10 && !Number.isInteger(v) ? 1 : 0) + (v === 0 ? ' ms' : '')),
  ]);
  host.replaceChildren(sv('svg', { width, height: bottom + 18, viewBox: '0 0 ' + width + ' ' + (bottom + 18), style: 'width:' + width + 'px' },
    axis, stages.map((spans, stage) => stageRow(job, spans, stage, x))));
  host.scale = scale;
}

function pipelineTable(job) {
  const kinds = job.pipeline.kinds;
  const step = job.report.time.step_ns;
  return table([['stage', ''], ...kinds.map((k) => [k, 'num']), ['in all', 'num']], job.pipeline.sums.map((sums, stage) =>
    [String(stage), ...sums.map((ns) => (ns > 0 ? [ms(ns), ' ', el('span', { class: 'soft' }, percent(ns, step))] : '')),
      ms(sums.reduce((a, b) => a + b, 0))]));
}

function pipelineSection(job) {
  if (!job.pipeline || !job.report.time) return null;
  const stages = job.pipeline.stages.map(spansOf);
  const end = Math.max(...stages.map((s) => (s.length > 0 ? s[s.length - 1].end : 0)));
  const words = el('p', { class: 'small soft', 'aria-live': 'polite' }, 'Point at a pass, or use the arrow keys.');
  const scroller = el('div', { class: 'scroll', tabindex: '0', role: 'img', 'aria-label': 'pipeline stages by time; arrow keys move along the passes' });
  const host = redrawn(el('div', { class: 'chart', id: 'pipeline-chart' }), () => drawPipeline(job, host, stages, scroller.clientWidth, end));
  scroller.append(host);
  const buttons = [false, true].map((wide) => el('button', { type: 'button', class: 'small', 'aria-pressed': String(!wide), onclick: () => {
    host.wide = wide;
    buttons.forEach((b, i) => b.setAttribute('aria-pressed', String((i === 1) === wide)));
    host.redraw();
  } }, wide ? 'wide' : 'whole step'));
  const at = { stage: 0, i: -1 };
  const show = (stage, i) => {
    const s = stages[stage] && stages[stage][i];
    if (!s) return false;
    at.stage = stage;
    at.i = i;
    words.textContent = spanWords(job, stage, s);
    return true;
  };
  host.addEventListener('pointermove', (e) => {
    const box = host.getBoundingClientRect();
    const ns = (e.clientX - box.left) / host.scale;
    const stage = Math.floor((e.clientY - box.top) / ROW);
    if (stages[stage]) show(stage, stages[stage].findIndex((s) => s.begin <= ns && ns < s.end));
  });
  scroller.addEventListener('keydown', (e) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
    if (!move || !show(at.stage + move[0], Math.max(0, at.i + move[1]))) return;
    scroller.scrollLeft = stages[at.stage][at.i].begin * host.scale - scroller.clientWidth / 2;
    e.preventDefault();
  });
  const names = el('div', { class: 'names', 'aria-hidden': 'true' }, stages.map((_, i) => el('div', { style: 'height:' + ROW + 'px' }, 'stage ' + i)));
  const legend = el('div', { class: 'legend' }, job.pipeline.kinds.map((kind, k) => (job.pipeline.sums.some((s) => s[k] > 0)
    ? el('span', { class: 'item' }, el('span', { class: 'swatch', style: 'background:' + colour(SPAN_COLOURS[k]) }), kind) : null)));
  const total = job.pipeline.sums.map((s) => s.reduce((a, b) => a + b, 0));
  const cut = stages.some((s, i) => s.reduce((n, span) => n + span.end - span.begin, 0) < total[i]);
  const section_ = section('pipeline', 'Pipeline', 'One step in the steady state, estimated: ' + ms(job.report.time.step_ns)
    + (cut ? '; only its beginning is drawn.' : '. Numbers are micro-batches' + (job.grid.vpp > 1 ? '; every other chunk is lighter.' : '.')),
  el('div', { class: 'buttons', role: 'group', 'aria-label': 'width' }, buttons), legend, el('figure', null, el('div', { class: 'stages' }, names, scroller)), words, more('The same as a table', pipelineTable(job)));
  section_.redraw = () => host.redraw();
  return section_;
}

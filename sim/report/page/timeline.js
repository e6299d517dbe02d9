// SPDX-License-Identifier: Apache-2.0
'use strict';
// Memory of one rank over its operations: categories stacked, reserved above, passes underneath.

const PLOT = { left: 46, right: 8, top: 22, height: 250, strip: 18 };

// Differences to values, once a timeline.
function unpack(job, t) {
  if (t.points) return t;
  const sum = (list, unit) => { let v = 0; return list.map((d) => (v += d) * unit); };
  t.op = sum(t.ops, 1);
  t.reservedAt = sum(t.reserved, job.unit_bytes);
  t.bytes = job.categories.map((name) => sum(t.categories[name], job.unit_bytes));
  t.allocated = t.op.map((_, i) => t.bytes.reduce((n, list) => n + list[i], 0));
  t.points = t.op.length;
  t.peak = t.allocated.indexOf(Math.max(...t.allocated));
  let begin = 1;
  t.passes = t.stretches.map(([n, phases, iteration, microbatch, chunk, lastIteration, lastMicrobatch]) => {
    const pass = { begin, end: begin + n, phases, iteration, microbatch, chunk,
      lastIteration: lastIteration === undefined ? iteration : lastIteration,
      lastMicrobatch: lastMicrobatch === undefined ? microbatch : lastMicrobatch };
    begin += n;
    return pass;
  });
  return t;
}

const PHASE_COLOURS = { forward: 'forward', backward: 'backward', 'weight gradients': 'weight-grad', 'gradient sync': 'grad-sync', 'grad sync': 'grad-sync',
  'optimizer step': 'optimizer-step' };

function phaseNames(job, pass) {
  return job.phases.filter((_, i) => pass.phases & (1 << i));
}

function phaseColour(job, pass) {
  return colour(PHASE_COLOURS[phaseNames(job, pass)[0]] || 'build');
}

function passWords(job, pass) {
  const names = phaseNames(job, pass);
  const inPass = names.some((n) => n === 'forward' || n === 'backward' || n === 'weight gradients');
  let text = pass.iteration > 0 ? 'iteration ' + ranges(pass.iteration === pass.lastIteration ? [pass.iteration] : [pass.iteration, pass.lastIteration]) + ', ' : '';
  text += names.join(' and ');
  if (inPass) text += ' of micro-batch ' + (pass.microbatch === pass.lastMicrobatch ? pass.microbatch : pass.microbatch + ' to ' + pass.lastMicrobatch);
  if (inPass && job.grid.vpp > 1 && pass.lastMicrobatch === pass.microbatch) text += ', chunk ' + pass.chunk;
  return text;
}

function passAt(t, op) {
  let low = 0;
  let high = t.passes.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (t.passes[middle].end > op) high = middle; else low = middle + 1;
  }
  return t.passes[low];
}

// Iterations of the timeline: { iteration, begin, end } by operations.
function iterationsOf(t) {
  const list = [];
  for (const pass of t.passes) {
    const last = list[list.length - 1];
    if (last && last.iteration === pass.iteration) last.end = pass.end;
    else list.push({ iteration: pass.iteration, begin: pass.begin, end: pass.end });
  }
  return list;
}

function iterationName(i) {
  return i === 0 ? 'set-up' : 'iteration ' + i;
}

// Indices of the samples that a view needs: those inside, and one on each side.
function inView(t, view) {
  let first = t.op.findIndex((op) => op >= view[0]);
  if (first < 0) first = t.points - 1;
  let last = first;
  while (last < t.points - 1 && t.op[last] <= view[1]) last++;
  return [Math.max(0, first - 1), last];
}

// A stepped path along `value` over the samples first..last.
function stepPath(t, first, last, x, y, value, backwards) {
  let d = '';
  if (!backwards) {
    for (let i = first; i <= last; i++) d += (i > first ? 'H' + x(t.op[i]) : '') + (i > first ? 'V' : 'M' + x(t.op[i]) + ' ') + y(value(i));
  } else {
    for (let i = last; i >= first; i--) d += (i < last ? 'H' + x(t.op[i + 1]) : '') + 'V' + y(value(i));
    d = d.replace(/^V/, 'V') + 'H' + x(t.op[first]);
  }
  return d;
}

function areas(job, t, range, x, y, top) {
  const [first, last] = range;
  const below = new Array(t.points).fill(0);
  return job.categories.map((name, c) => {
    const start = below.slice();
    for (let i = first; i <= last; i++) below[i] += t.bytes[c][i];
    const end = below.slice();
    if (!t.bytes[c].some((b) => b > 0)) return null;
    const d = stepPath(t, first, last, x, y, (i) => end[i]) + stepPath(t, first, last, x, y, (i) => start[i], true) + 'Z';
    return sv('path', { d, fill: colour(name), 'data-category': name, 'clip-path': 'url(#' + top + ')' });
  });
}

function yAxis(max, y, width, n) {
  return steps(max / GIB, n).map((v) => [
    sv('line', { class: 'rule', x1: PLOT.left, x2: width - PLOT.right, y1: y(v * GIB), y2: y(v * GIB) }),
    sv('text', { x: PLOT.left - 6, y: y(v * GIB) + 4, 'text-anchor': 'end' }, fixed(v, Number.isInteger(v) ? 0 : max / GIB < 1 ? 2 : 1)),
  ]);
}

// Passes as a strip: one path a phase, numbers where there is room.
function passStrip(job, t, view, x, y) {
  const paths = new Map();
  const texts = [];
  for (const pass of t.passes) {
    if (pass.end <= view[0] || pass.begin >= view[1]) continue;
    const a = x(Math.max(pass.begin, view[0]));
    const b = x(Math.min(pass.end, view[1]));
    const fill = phaseColour(job, pass);
    paths.set(fill, (paths.get(fill) || '') + 'M' + a + ' ' + y + 'H' + (b - a > 3 ? b - 1 : b) + 'V' + (y + PLOT.strip) + 'H' + a + 'Z');
    const label = pass.microbatch === pass.lastMicrobatch && /forward|backward|weight/.test(phaseNames(job, pass)[0]) ? String(pass.microbatch) : '';
    if (label && b - a > 7 + 6 * label.length) {
      texts.push(sv('text', { class: 'on', x: (a + b) / 2, y: y + 13, 'text-anchor': 'middle' }, label));
    }
  }
  return [[...paths].map(([fill, d]) => sv('path', { d, fill, class: 'pass' })), texts];
}

function iterationMarks(t, view, x, bottom, y) {
  return iterationsOf(t).map((it) => {
    if (it.end <= view[0] || it.begin >= view[1]) return null;
    const a = x(Math.max(it.begin, view[0]));
    const b = x(Math.min(it.end, view[1]));
    const name = b - a > 70 ? iterationName(it.iteration) : b - a > 16 && it.iteration > 0 ? String(it.iteration) : '';
    return [it.begin > view[0] ? sv('line', { class: 'iteration', x1: a, x2: a, y1: PLOT.top, y2: bottom }) : null,
      name ? sv('text', { x: (a + b) / 2, y, 'text-anchor': 'middle' }, name) : null];
  });
}

// A label that stays inside the plot.
function peakLabel(text, px, py, width) {
  const right = px > width * 0.6;
  return sv('text', { class: 'strong peak', x: right ? px - 8 : px + 8, y: Math.max(py - 7, 10), 'text-anchor': right ? 'end' : 'start' }, text);
}

class Timeline {
  constructor(job, place) {
    this.job = job;
    this.t = unpack(job, timelineOf(job, place));
    this.place = place;
    this.view = [1, this.t.n_ops];
    this.at = this.t.peak;
    this.legend = el('div', { class: 'legend' });
    this.words = el('p', { class: 'small soft', 'aria-live': 'polite' });
    this.chart = this.figure('memory over time by category', (width) => this.draw(width));
    this.gaps = this.figure('reserved but not allocated over time', (width) => this.drawGaps(width));
  }

  figure(name, draw) {
    const host = redrawn(el('div', { class: 'chart', tabindex: '0', role: 'img', 'aria-label': name + '; arrow keys move along it' }), draw);
    host.addEventListener('pointermove', (e) => this.point(e, host));
    host.addEventListener('pointerdown', (e) => this.point(e, host));
    host.addEventListener('keydown', (e) => this.keys(e));
    return host;
  }

  x(width) {
    const [a, b] = this.view;
    const scale = (width - PLOT.left - PLOT.right) / Math.max(1, b - a);
    return (op) => Math.round((PLOT.left + (Math.min(Math.max(op, a), b) - a) * scale) * 10) / 10;
  }

  point(event, host) {
    const box = host.getBoundingClientRect();
    const part = (event.clientX - box.left - PLOT.left) / (box.width - PLOT.left - PLOT.right);
    const op = this.view[0] + Math.min(1, Math.max(0, part)) * (this.view[1] - this.view[0]);
    let i = this.t.op.findIndex((o) => o > op);
    i = i < 0 ? this.t.points - 1 : Math.max(0, i - 1);
    this.moveTo(i);
  }

  keys(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    let to = null;
    if (step) to = this.at + step;
    else if (event.key === 'Home') to = inView(this.t, this.view)[0];
    else if (event.key === 'End') to = inView(this.t, this.view)[1];
    else if (event.key === 'p') to = this.t.peak;
    if (to === null) return;
    this.moveTo(Math.min(this.t.points - 1, Math.max(0, to)));
    event.preventDefault();
  }

  moveTo(i) {
    this.at = i;
    this.showAt();
    for (const host of [this.chart, this.gaps]) {
      const line = host.querySelector('.cursor');
      if (line === null) continue;
      const px = this.x(host.clientWidth)(this.t.op[i]);
      line.setAttribute('x1', px);
      line.setAttribute('x2', px);
    }
  }

  // The legend says the figures at the cursor.
  showAt() {
    const { job, t, at } = this;
    const items = job.categories.map((name, c) => (t.bytes[c].some((b) => b > 0)
      ? el('span', { class: 'item' }, swatch(name), name, el('b', null, size(t.bytes[c][at]))) : null));
    items.push(el('span', { class: 'item' }, 'allocated', el('b', { 'data-bytes': t.allocated[at] }, size(t.allocated[at]))));
    items.push(el('span', { class: 'item' }, el('span', { class: 'line' }), 'reserved', el('b', null, size(t.reservedAt[at]))));
    this.legend.replaceChildren(...items.filter((i) => i !== null));
    this.words.textContent = (at === t.peak ? 'At the peak: ' : 'At: ') + passWords(job, passAt(t, t.op[at])) + ' (operation ' + whole(t.op[at]) + ' of ' + whole(t.n_ops) + ')';
  }

  draw(width) {
    const { job, t } = this;
    const bottom = PLOT.top + PLOT.height;
    const ledger = job.classes[t.class].ledger;
    const usable = Math.max(0, ledger.total_bytes - ledger.outside_bytes);
    const reserved = Math.max(...t.reservedAt);
    const max = reserved > 0.55 * usable ? usable * 1.03 : reserved * 1.12;
    const x = this.x(width);
    const y = (bytes) => Math.round((bottom - PLOT.height * bytes / max) * 10) / 10;
    const range = inView(t, this.view);
    const [first, last] = range;
    const height = bottom + 8 + PLOT.strip + 18;
    let peak = first;
    for (let i = first; i <= last; i++) {
      const inside = t.op[i] >= this.view[0] && t.op[i] <= this.view[1];
      if (inside && (t.allocated[i] > t.allocated[peak] || t.op[peak] < this.view[0])) peak = i;
    }
    const clip = 'clip-' + job.id;
    const px = x(t.op[peak]);
    const limit = usable <= max ? [
      sv('line', { class: 'limit', x1: PLOT.left, x2: width - PLOT.right, y1: y(usable), y2: y(usable) }),
      px > width / 2 ? sv('text', { x: PLOT.left + 4, y: y(usable) - 5 }, 'usable ' + size(usable))
        : sv('text', { x: width - PLOT.right, y: y(usable) - 5, 'text-anchor': 'end' }, 'usable ' + size(usable))] : null;
    this.chart.replaceChildren(sv('svg', { height, viewBox: '0 0 ' + width + ' ' + height, 'data-points': last - first + 1 },
      sv('clipPath', { id: clip }, sv('rect', { x: PLOT.left, y: 0, width: width - PLOT.left - PLOT.right, height: bottom })),
      yAxis(max, y, width, 5), areas(job, t, range, x, y, clip),
      sv('path', { class: 'reserved', d: stepPath(t, first, last, x, y, (i) => t.reservedAt[i]), 'clip-path': 'url(#' + clip + ')' }),
      limit, iterationMarks(t, this.view, x, bottom, height - 4), passStrip(job, t, this.view, x, bottom + 6),
      sv('line', { class: 'cursor', x1: x(t.op[this.at]), x2: x(t.op[this.at]), y1: PLOT.top, y2: bottom + 6 + PLOT.strip }),
      sv('circle', { class: 'dot', cx: px, cy: y(t.allocated[peak]), r: 4, 'data-bytes': t.allocated[peak] }),
      peakLabel('peak ' + size(t.allocated[peak]), px, y(t.allocated[peak]), width),
      sv('text', { x: 0, y: 11 }, 'GiB')));
    this.showAt();
  }

  drawGaps(width) {
    const { job, t } = this;
    const top = 16;
    const bottom = top + 90;
    const gap = t.reservedAt.map((r, i) => r - t.allocated[i]);
    const [first, last] = inView(t, this.view);
    let most = first;
    for (let i = first; i <= last; i++) if (gap[i] > gap[most]) most = i;
    const max = Math.max(gap[most] * 1.15, MIB);
    const x = this.x(width);
    const y = (bytes) => Math.round((bottom - (bottom - top) * bytes / max) * 10) / 10;
    const d = stepPath(t, first, last, x, y, (i) => gap[i]) + 'V' + bottom + 'H' + x(t.op[first]) + 'Z';
    const px = x(t.op[most]);
    this.gaps.replaceChildren(sv('svg', { height: bottom + 20, viewBox: '0 0 ' + width + ' ' + (bottom + 20) },
      yAxis(max, y, width, 3), sv('path', { d, fill: colour('cached'), class: 'gap' }),
      iterationMarks(t, this.view, x, bottom, bottom + 15),
      sv('line', { class: 'cursor', x1: x(t.op[this.at]), x2: x(t.op[this.at]), y1: top, y2: bottom }),
      sv('circle', { class: 'dot', cx: px, cy: y(gap[most]), r: 3.5 }),
      peakLabel('most ' + size(gap[most]), px, y(gap[most]), width)));
  }

  redraw() {
    this.chart.redraw();
    this.gaps.redraw();
  }

  // Buttons that show everything, or one iteration.
  zoom() {
    const parts = [['all', [1, this.t.n_ops]]];
    const list = iterationsOf(this.t);
    for (const it of list.length > 9 ? list.slice(0, 9) : list) parts.push([iterationName(it.iteration), [it.begin, it.end]]);
    const buttons = parts.map(([name, view], i) => el('button', { type: 'button', class: 'small', 'aria-pressed': String(i === 0),
      onclick: (event) => {
        buttons.forEach((b) => b.setAttribute('aria-pressed', String(b === event.currentTarget)));
        this.view = view;
        this.redraw();
      } }, name));
    return el('div', { class: 'buttons', role: 'group', 'aria-label': 'part of the run' }, buttons);
  }

  // Highest points by iteration and phase.
  phaseTable() {
    const rows = new Map();
    this.t.op.forEach((op, i) => {
      const pass = passAt(this.t, op);
      const key = pass.iteration + ' ' + phaseNames(this.job, pass).join(' and ');
      if (!rows.has(key)) rows.set(key, { pass, best: i, reserved: 0 });
      const row = rows.get(key);
      if (this.t.allocated[i] > this.t.allocated[row.best]) row.best = i;
      row.reserved = Math.max(row.reserved, this.t.reservedAt[i]);
    });
    return table([['iteration', ''], ['phase', ''], ['highest allocated', 'num'], ['reserved', 'num']],
      [...rows.values()].slice(0, 200).map((r) => [iterationName(r.pass.iteration), phaseNames(this.job, r.pass).join(' and '),
        sized(this.t.allocated[r.best]), sized(r.reserved)]));
  }

  sections() {
    const { job, t, place } = this;
    const borrowed = t.class === place.class ? '' : ' This is rank ' + t.rank + ' of the same stage; rank ' + place.rank + ' differs in what its optimizer shard holds.';
    const repeats = job.report.scenario.run.iterations > t.last_iteration && job.classes[t.class].fits
      ? ' Iterations after ' + t.last_iteration + ' repeat it.' : '';
    const memory = section('timeline', 'Memory over time, rank ' + nameOfTimeline(t, place), 'By category, over allocations and frees; passes underneath, with the number of the micro-batch.' + repeats + borrowed,
      this.zoom(), this.legend, el('figure', null, this.chart), this.words, phaseLegend(job, t), more('The same as a table', this.phaseTable()));
    const gaps = section('gaps', 'Reserved but not allocated, rank ' + nameOfTimeline(t, place),
      'What the caching allocator holds beyond the tensors: free blocks, and the room that fragmentation takes.', el('figure', null, this.gaps),
      more('The same as a table', this.gapTable()));
    return [memory, gaps];
  }

  gapTable() {
    return table([['iteration', ''], ['most', 'num'], ['least', 'num']], iterationsOf(this.t).slice(0, 200).map((it) => {
      const gaps = this.t.op.map((op, i) => (op >= it.begin && op < it.end ? this.t.reservedAt[i] - this.t.allocated[i] : null)).filter((g) => g !== null);
      return [iterationName(it.iteration), sized(Math.max(...gaps)), sized(Math.min(...gaps))];
    }));
  }
}

function phaseLegend(job, t) {
  const seen = new Map();
  for (const pass of t.passes) for (const name of phaseNames(job, pass)) seen.set(name, PHASE_COLOURS[name] || 'build');
  const byColour = new Map();
  for (const [name, c] of seen) byColour.set(c, (byColour.get(c) || []).concat(name));
  return el('div', { class: 'legend' }, [...byColour].map(([c, names]) => el('span', { class: 'item' },
    el('span', { class: 'swatch', style: 'background:' + colour(c) }), names.join(', '))));
}

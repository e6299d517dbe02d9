// SPDX-License-Identifier: Apache-2.0
'use strict';
// The page of a sweep: memory against time, what fits best, filters by key.

const METRICS = [
  { key: 'estimated_step_ms', name: 'step time', unit: 'ms', better: -1 },
  { key: 'estimated_tokens_per_s', name: 'throughput', unit: 'tokens/s', better: 1 },
];
const STATUS_COLOURS = { fits: 'optimizer', 'at risk': 'activations', risk: 'activations', 'out of memory': 'temporary' };
const SHOWN_ROWS = 100;

function shortKey(key) {
  return key.replace('tensor_model_parallel_size', 'TP').replace('virtual_pipeline_model_parallel_size', 'VPP')
    .replace('pipeline_model_parallel_size', 'PP').replace('expert_model_parallel_size', 'EP').replace('context_parallel_size', 'CP')
    .replace('expert_tensor_parallel_size', 'ETP').replace('micro_batch_size', 'micro-batch').replace('global_batch_size', 'global batch')
    .replace('recompute_granularity', 'recompute').replace(/_/g, ' ');
}

function sweepRows(sweep) {
  const names = Object.keys(sweep.columns);
  return sweep.columns.layout.map((_, i) => {
    const row = {};
    for (const name of names) row[name] = sweep.columns[name][i];
    return row;
  });
}

// Rows that fit and that no other row beats in both memory and metric.
function paretoFront(rows, metric) {
  const list = rows.filter((r) => r.status === 'fits' && r[metric.key] !== null)
    .sort((a, b) => a.device_used_bytes - b.device_used_bytes || metric.better * (b[metric.key] - a[metric.key]));
  const front = [];
  let best = null;
  for (const row of list) {
    if (best !== null && metric.better * (row[metric.key] - best) <= 0) continue;
    best = row[metric.key];
    front.push(row);
  }
  return front;
}

class Sweep {
  constructor(sweep) {
    this.sweep = sweep;
    this.rows = sweepRows(sweep);
    this.metric = METRICS[0];
    this.hidden = new Map([...sweep.axes, 'status'].map((key) => [key, new Set()]));
    this.sort = { key: 'estimated_tokens_per_s', down: true };
    this.words = el('p', { class: 'small', 'aria-live': 'polite' });
    this.chart = redrawn(el('div', { class: 'chart', tabindex: '0', role: 'img', id: 'scatter',
      'aria-label': 'memory against time of all layouts; arrow keys move along the best ones' }), (width) => this.draw(width));
    this.chart.addEventListener('pointermove', (e) => this.point(e));
    this.chart.addEventListener('keydown', (e) => this.keys(e));
    this.list = el('div', { class: 'scroll tall' });
    this.count = el('p', { class: 'small soft', id: 'count', 'aria-live': 'polite' });
    this.filter();
  }

  filter() {
    this.shown = this.rows.filter((row) => [...this.hidden].every(([key, values]) => !values.has(String(row[key]))));
    this.front = paretoFront(this.shown, this.metric);
    this.at = this.front.length - 1;
    this.count.textContent = whole(this.shown.length) + ' of ' + whole(this.sweep.n_rows) + ' layouts shown, '
      + whole(this.front.length) + ' of them on the front: none that fits is better in both.';
    this.fillTable();
    this.show(this.front[this.at]);
    this.chart.redraw();
  }

  layoutWords(row) {
    return this.sweep.axes.map((key) => shortKey(key) + ' ' + row[key]).join(', ');
  }

  show(row) {
    this.chosen = row;
    this.words.replaceChildren();
    if (!row) return;
    this.words.append('Layout ' + row.layout + ': ' + this.layoutWords(row) + ', DP ' + row.data_parallel_size + ' — ' + row.status + ', ',
      row.device_used_bytes === null ? '' : sized(row.device_used_bytes), ' of the device on rank ' + row.worst_rank + ', '
      + (row.estimated_step_ms === null ? '' : fixed(row.estimated_step_ms, 1) + ' ms a step'));
    const dot = this.chart.querySelector('.chosen');
    if (dot && this.place) {
      dot.setAttribute('cx', this.place.x(row));
      dot.setAttribute('cy', this.place.y(row));
    }
  }

  point(event) {
    if (!this.place) return;
    const box = this.chart.getBoundingClientRect();
    const px = event.clientX - box.left;
    const py = event.clientY - box.top;
    let best = null;
    let least = 900;
    for (const row of this.drawn) {
      const d = (this.place.x(row) - px) ** 2 + (this.place.y(row) - py) ** 2;
      if (d < least) { least = d; best = row; }
    }
    if (best) this.show(best);
  }

  keys(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !this.front[this.at + move]) return;
    this.at += move;
    this.show(this.front[this.at]);
    event.preventDefault();
  }

  draw(width) {
    const key = this.metric.key;
    this.drawn = this.shown.filter((r) => r[key] !== null && r.device_used_bytes !== null);
    if (this.drawn.length === 0) {
      this.chart.replaceChildren(el('p', { class: 'soft' }, 'No layout to draw.'));
      return;
    }
    const height = 330;
    const left = 62;
    const top = 24;
    const bottom = height - 34;
    const device = this.drawn[0].device_bytes;
    const fitting = this.drawn.filter((r) => r.status !== 'out of memory');
    const most = Math.max(...this.drawn.map((r) => r.device_used_bytes));
    const maxX = Math.min(Math.max(most, device) * 1.03, 2 * device);
    const maxY = Math.max(...(fitting.length > 0 ? fitting : this.drawn).map((r) => r[key])) * 1.1;
    const place = {
      x: (r) => Math.round((left + (width - left - 10) * Math.min(r.device_used_bytes, maxX) / maxX) * 10) / 10,
      y: (r) => Math.round((bottom - (bottom - top) * Math.min(r[key], maxY) / maxY) * 10) / 10,
    };
    this.place = place;
    const paths = new Map();
    for (const row of this.drawn) paths.set(row.status, (paths.get(row.status) || '') + 'M' + place.x(row) + ' ' + place.y(row) + 'h0');
    const deviceX = left + (width - left - 10) * device / maxX;
    const front = this.front.map((r, i) => (i === 0 ? 'M' + place.x(r) + ' ' + place.y(r) : 'H' + place.x(r) + 'V' + place.y(r))).join('');
    const chosen = this.chosen || this.drawn[0];
    this.chart.replaceChildren(sv('svg', { height, viewBox: '0 0 ' + width + ' ' + height },
      steps(maxY, 5).map((v) => [sv('line', { class: 'rule', x1: left, x2: width - 10, y1: place.y({ [key]: v }), y2: place.y({ [key]: v }) }),
        sv('text', { x: left - 6, y: place.y({ [key]: v }) + 4, 'text-anchor': 'end' }, fixed(v, 0))]),
      steps(maxX / GIB, Math.max(2, Math.floor(width / 110))).map((v) => sv('text', { x: place.x({ device_used_bytes: v * GIB }), y: bottom + 16, 'text-anchor': 'middle' }, fixed(v, 0))),
      sv('text', { x: width - 10, y: bottom + 31, 'text-anchor': 'end' }, 'device used on the worst rank, GiB'),
      sv('text', { x: 0, y: 12 }, this.metric.name + ', ' + this.metric.unit + ' (estimated)'),
      sv('line', { class: 'limit', x1: deviceX, x2: deviceX, y1: top, y2: bottom }),
      sv('text', { x: deviceX - 5, y: top + 10, 'text-anchor': 'end', class: 'strong' }, 'device ' + size(device)),
      [...paths].map(([status, d]) => sv('path', { d, class: 'points', 'data-status': status, style: 'stroke:' + colour(STATUS_COLOURS[status] || 'data') })),
      sv('path', { d: front, class: 'reserved front' }),
      sv('circle', { class: 'chosen', r: 6, cx: place.x(chosen), cy: place.y(chosen) })));
  }

  columns() {
    const plain = (key, name) => ({ key, name, text: (r) => (r[key] === null ? '' : String(r[key])) });
    return [plain('layout', 'layout'), ...this.sweep.axes.map((key) => plain(key, shortKey(key))), plain('data_parallel_size', 'DP'),
      { key: 'device_used_bytes', name: 'device used', text: (r) => (r.device_used_bytes === null ? '' : sized(r.device_used_bytes)) },
      { key: 'headroom_bytes', name: 'headroom', text: (r) => (r.headroom_bytes === null ? '' : sized(r.headroom_bytes)) },
      { key: 'estimated_step_ms', name: 'step, ms', text: (r) => (r.estimated_step_ms === null ? '' : fixed(r.estimated_step_ms, 1)) },
      { key: 'estimated_tokens_per_s', name: 'tokens/s', text: (r) => (r.estimated_tokens_per_s === null ? '' : whole(r.estimated_tokens_per_s)) },
      { key: 'estimated_mfu_percent', name: 'MFU, %', text: (r) => (r.estimated_mfu_percent === null ? '' : fixed(r.estimated_mfu_percent, 1)) },
      { key: 'status', name: 'status', text: (r) => (r.error ? r.status + ': ' + r.error : r.status) }];
  }

  compare(a, b) {
    const rank = (r) => (r.status === 'fits' ? 0 : r.status === 'out of memory' ? 2 : 1);
    const { key, down } = this.sort;
    const [x, y] = [a[key], b[key]];
    if (rank(a) !== rank(b)) return rank(a) - rank(b);
    const order = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y));
    return (down ? -order : order) || a.layout - b.layout;
  }

  fillTable() {
    const columns = this.columns();
    const rows = this.shown.slice().sort((a, b) => this.compare(a, b));
    const head = columns.map((c) => el('th', { class: 'num', scope: 'col', 'aria-sort': this.sort.key === c.key ? this.sort.down ? 'descending' : 'ascending' : null },
      el('button', { type: 'button', class: 'plain', onclick: () => {
        this.sort = { key: c.key, down: this.sort.key === c.key ? !this.sort.down : true };
        this.fillTable();
      } }, c.name + (this.sort.key === c.key ? this.sort.down ? ' ▾' : ' ▴' : ''))));
    const body = rows.slice(0, SHOWN_ROWS).map((row) => el('tr', { onclick: () => this.show(row) }, columns.map((c) => el('td', { class: 'num' }, c.text(row)))));
    this.list.replaceChildren(el('table', { class: 'wide', id: 'layouts' }, el('thead', null, el('tr', null, head)), el('tbody', null, body)),
      rows.length > SHOWN_ROWS ? el('p', { class: 'soft small' }, whole(rows.length - SHOWN_ROWS) + ' more; filter to see them.') : '');
  }

  filters() {
    return [...this.hidden].map(([key, hidden]) => {
      const values = [...new Set(this.rows.map((r) => String(r[key])))];
      values.sort((a, b) => Number(a) - Number(b) || a.localeCompare(b));
      if (values.length < 2) return null;
      return el('fieldset', { class: 'filter' }, el('legend', null, shortKey(key)), values.map((value) => el('label', null,
        el('input', { type: 'checkbox', checked: true, 'data-key': key, value, onchange: (event) => {
          if (event.target.checked) hidden.delete(value); else hidden.add(value);
          this.filter();
        } }), ' ' + value)));
    });
  }

  metricButtons() {
    const buttons = METRICS.map((metric, i) => el('button', { type: 'button', class: 'small', 'aria-pressed': String(i === 0), onclick: () => {
      this.metric = metric;
      buttons.forEach((b, k) => b.setAttribute('aria-pressed', String(k === i)));
      this.filter();
    } }, metric.name));
    return el('div', { class: 'buttons', role: 'group', 'aria-label': 'what is drawn upwards' }, buttons);
  }
}

function sweepVerdict(rows, sweep) {
  const count = (status) => rows.filter((r) => r.status === status).length;
  const fitting = rows.filter((r) => r.status === 'fits');
  const fastest = fitting.reduce((a, b) => (a === null || b.estimated_tokens_per_s > a.estimated_tokens_per_s ? b : a), null);
  const roomiest = fitting.reduce((a, b) => (a === null || b.headroom_bytes > a.headroom_bytes ? b : a), null);
  const others = rows.length - fitting.length - count('out of memory');
  const words = (row) => sweep.axes.map((key) => shortKey(key) + ' ' + row[key]).join(', ');
  return el('div', { class: 'verdict' + (fitting.length === 0 ? ' bad' : ''), id: 'verdict' },
    el('p', { class: 'answer' }, whole(fitting.length) + ' of ' + whole(rows.length) + ' layouts fit.'),
    el('div', { class: 'tiles' },
      fastest ? tile('Fastest that fits, estimated', short(fastest.estimated_tokens_per_s) + ' tokens/s', 'layout ' + fastest.layout + ': ' + words(fastest)) : null,
      roomiest ? tile('Most headroom', sized(roomiest.headroom_bytes), 'layout ' + roomiest.layout + ': ' + words(roomiest)) : null,
      tile('Out of memory', whole(count('out of memory')), 'layouts'),
      tile('At risk, or not simulated', whole(others), 'layouts')));
}

function sweepPage(sweep) {
  const name = sweep.name || 'sweep';
  document.title = name + ': sweep - mbsim';
  const study = new Sweep(sweep);
  document.getElementById('top').append(el('h1', null, name), el('p', { class: 'soft' }, 'Sweep over ' + sweep.axes.map(shortKey).join(', ')));
  const legend = el('div', { class: 'legend' }, [...new Set(study.rows.map((r) => r.status))].map((s) => el('span', { class: 'item' },
    el('span', { class: 'swatch', style: 'background:' + colour(STATUS_COLOURS[s] || 'data') }), s)),
  el('span', { class: 'item' }, el('span', { class: 'line' }), 'the front: nothing that fits is better in both'));
  document.getElementById('main').append(sweepVerdict(study.rows, sweep),
    section('filters', 'Filters', 'Leave values out to see what is left.', el('div', { class: 'filters' }, study.filters()), study.count),
    section('chart', 'Memory against time', 'Each dot is a layout; what needs more than twice the device is at the right edge.', study.metricButtons(), legend, el('figure', null, study.chart), study.words),
    section('table', 'Layouts', 'Those that fit first. Choose a heading to sort by it, a row to see it above.', study.list),
    section('scenario', 'How this page was made', '', el('pre', { tabindex: '0' }, sweep.command), copyButton(sweep.command)));
  study.chart.redraw();
  document.getElementById('foot').append('mbsim ' + sweep.version + ' · simulated, not measured · times are estimates that put layouts in order'
    + (sweep.n_rows > study.rows.length ? ' · ' + whole(sweep.n_rows - study.rows.length) + ' layouts that are worse are left out' : ''));
}

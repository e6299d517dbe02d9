// SPDX-License-Identifier: Apache-2.0
'use strict';
// Ranks: pipeline stages by all other axes, rows with equal figures folded.

const AXES = ['tp', 'cp', 'ep', 'dp', 'pp'];
const MAX_GRID_ROWS = 200;

function placesOf(job) {
  return job.ranks.map((r) => {
    const place = { rank: r[0], class: r[1] };
    AXES.forEach((axis, i) => { place[axis] = r[2 + i]; });
    return place;
  });
}

function coordinates(job, place) {
  return AXES.slice().reverse().filter((a) => job.grid[a] > 1).map((a) => a + ' ' + place[a]).join(', ');
}

function figuresKey(c) {
  return [c.fits, c.max_allocated_bytes, c.max_reserved_bytes, c.device_used_bytes].join(' ');
}

// Rows of the grid: { places: by pipeline rank a list of places, combos: the folded ones }.
function gridRows(job, places) {
  const combos = new Map();
  for (const place of places) {
    const key = [place.dp, place.ep, place.cp, place.tp].join(' ');
    if (!combos.has(key)) combos.set(key, { place, stages: [] });
    combos.get(key).stages[place.pp] = place;
  }
  const rows = new Map();
  for (const combo of combos.values()) {
    let key = '';
    for (let pp = 0; pp < job.grid.pp; pp++) {
      const place = combo.stages[pp];
      key += '|' + (place ? figuresKey(job.classes[place.class]) : '');
    }
    if (!rows.has(key)) rows.set(key, { combos: [], stages: [] });
    const row = rows.get(key);
    row.combos.push(combo.place);
    combo.stages.forEach((place, pp) => { (row.stages[pp] = row.stages[pp] || []).push(place); });
  }
  return [...rows.values()];
}

function rowName(job, row, nAll) {
  if (row.combos.length === nAll) return 'all';
  const parts = [];
  for (const axis of ['dp', 'ep', 'cp', 'tp']) {
    if (job.grid[axis] === 1) continue;
    const values = [...new Set(row.combos.map((p) => p[axis]))].sort((a, b) => a - b);
    if (values.length < job.grid[axis]) parts.push(axis + ' ' + shortRanges(values, 18));
  }
  return parts.join(', ') || 'others';
}

function gridCell(job, places, worst, choose) {
  if (!places) return el('td', null);
  const ranks = places.map((p) => p.rank).sort((a, b) => a - b);
  const isWorst = ranks.includes(worst);
  const first = isWorst ? worst : ranks[0];
  const c = job.classes[places.find((p) => p.rank === first).class];
  const part = c.device_used_bytes / c.ledger.total_bytes;
  const heat = c.fits ? 'rgba(var(--heat),' + (0.06 + 0.5 * part * part).toFixed(3) + ')' : 'rgba(var(--heat-bad),.5)';
  const count = ranks.length > 1 ? '×' + whole(ranks.length) : 'rank ' + first;
  const button = el('button', {
    type: 'button', class: 'cell' + (isWorst ? ' worst' : ''), style: 'background:' + heat,
    'aria-pressed': 'false', 'data-rank': first, onclick: () => choose(first),
    title: (ranks.length > 1 ? 'ranks ' : 'rank ') + shortRanges(ranks, 60) + ': '
      + (c.fits ? size(c.device_used_bytes) + ' used, ' + size(c.headroom_bytes) + ' left' : 'out of memory'),
  }, c.fits ? fixed(c.device_used_bytes / GIB, 2) : 'OOM', el('small', null, isWorst ? 'worst' + (ranks.length > 1 ? ' ' + count : '') : count));
  button.ranks = new Set(ranks);
  return el('td', null, button);
}

// Arrow keys move between cells.
function gridKeys(event) {
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const cell = event.target.closest('td');
  if (!move || !cell) return;
  const row = event.currentTarget.rows[cell.parentNode.rowIndex + move[0]];
  const next = row && row.cells[cell.cellIndex + move[1]];
  const button = next && next.querySelector('button');
  if (!button) return;
  button.focus();
  event.preventDefault();
}

function rankGrid(job, choose) {
  const places = placesOf(job);
  const rows = gridRows(job, places);
  const worst = job.report.verdict.worst_rank;
  const nAll = rows.reduce((n, row) => n + row.combos.length, 0);
  const isIn = (row) => row.stages.some((list) => list && list.some((p) => p.rank === worst));
  const shown = rows.filter((row, i) => i < MAX_GRID_ROWS || isIn(row));
  const stages = [...Array(job.grid.pp).keys()];
  const body = shown.map((row) => el('tr', null, el('th', { scope: 'row' }, rowName(job, row, nAll)),
    stages.map((pp) => gridCell(job, row.stages[pp], worst, choose))));
  const grid = el('table', { class: 'grid', onkeydown: gridKeys },
    el('thead', null, el('tr', null, el('th', { scope: 'col' }, el('span', { class: 'hidden' }, 'ranks')),
      stages.map((pp) => el('th', { scope: 'col' }, job.grid.pp > 1 ? 'stage ' + pp : 'all stages')))),
    el('tbody', null, body));
  const note = 'Device memory in use at the worst moment, GiB of ' + size(job.classes[0].ledger.total_bytes)
    + '. Choose a cell to see its rank below.';
  const left = rows.length - shown.length;
  return section('ranks', 'Ranks', note, el('div', { class: 'scroll tall' }, grid),
    left > 0 ? el('p', { class: 'soft small' }, whole(left) + ' more rows are in the table.') : null, rankTable(job, places));
}

function rankTable(job, places) {
  const kinds = new Map();
  for (const place of places) {
    if (!kinds.has(place.class)) kinds.set(place.class, []);
    kinds.get(place.class).push(place.rank);
  }
  const rows = [...kinds].map(([index, ranks]) => {
    const c = job.classes[index];
    return [shortRanges(ranks, 28), sized(c.max_allocated_bytes), sized(c.max_reserved_bytes), sized(c.device_used_bytes),
      c.fits ? sized(c.headroom_bytes) : 'out of memory',
      momentWords(c.fits ? c.allocated_moment : c.out_of_memory.moment, job.grid.vpp)];
  });
  return more('Ranks as a table', table([['ranks', ''], ['allocated', 'num'], ['reserved', 'num'], ['device used', 'num'],
    ['headroom', 'num'], ['moment', '']], rows));
}

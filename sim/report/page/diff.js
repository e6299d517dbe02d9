// SPDX-License-Identifier: Apache-2.0
'use strict';
// Two reports in one page: A, B, and B less A.

function signed(bytes) {
  const text = size(Math.abs(bytes));
  return el('span', { title: whole(bytes) + ' bytes', 'data-bytes': bytes, class: bytes > 0 ? 'more' : bytes < 0 ? 'less' : 'soft' },
    bytes > 0 ? '+' + text : bytes < 0 ? '−' + text : '0');
}

function side(name, report, w, which) {
  const v = report.verdict;
  return el('div', { class: 'verdict' + (v.fits ? '' : ' bad') },
    el('p', { class: 'soft small' }, name), el('p', { class: 'long' }, el('b', null, report.name || '')),
    el('p', { class: 'answer' }, v.fits ? 'Fits: ' + size(v.headroom_bytes) + ' headroom on rank ' + v.worst_rank
      : 'Out of memory on ' + whole(v.out_of_memory_ranks.length) + ' ranks: ' + shortRanges(v.out_of_memory_ranks, 40)),
    el('p', { class: 'small soft' }, 'Rank ' + w.rank[which] + ', peak in ' + momentWords(w.moment[which], 2)));
}

// Bars of both on one scale.
function pairBars(w, categories) {
  const most = Math.max(w.device_used_bytes.a, w.device_used_bytes.b);
  return ['a', 'b'].map((which) => {
    const parts = [['outside PyTorch', w.outside_bytes[which], 'outside'], ...categories.map((c) => [c, w.categories[c][which], c]),
      ['cached by PyTorch', w.cached_bytes[which], 'cached']];
    const bar = ledgerBar(parts, most);
    bar.dataset.side = which;
    return el('div', { class: 'pair' }, el('b', null, which.toUpperCase()), bar, el('span', { class: 'num' }, size(w.device_used_bytes[which])));
  });
}

function changeRows(values, label) {
  return Object.entries(values).filter(([, v]) => v.a !== 0 || v.b !== 0)
    .sort((x, y) => Math.abs(y[1].difference) - Math.abs(x[1].difference))
    .map(([name, v]) => [label(name), sized(v.a), sized(v.b), signed(v.difference)]);
}

const CHANGE_COLUMNS = [['', ''], ['A', 'num'], ['B', 'num'], ['B less A', 'num']];

function rankChanges(ranks) {
  const groups = new Map();
  for (const r of ranks) {
    const key = [r.allocated_bytes.difference, r.reserved_bytes.difference, r.device_used_bytes.a, r.device_used_bytes.b].join(' ');
    if (!groups.has(key)) groups.set(key, { ranks: [], r });
    groups.get(key).ranks.push(r.rank.a);
  }
  const rows = [...groups.values()].sort((x, y) => Math.abs(y.r.reserved_bytes.difference) - Math.abs(x.r.reserved_bytes.difference));
  return table([['ranks', ''], ['allocated', 'num'], ['reserved', 'num'], ['device used, A', 'num extra'], ['B', 'num extra']],
    rows.slice(0, 500).map(({ ranks: list, r }) => [shortRanges(list, 36), signed(r.allocated_bytes.difference), signed(r.reserved_bytes.difference),
      sized(r.device_used_bytes.a), sized(r.device_used_bytes.b)]), { class: 'wide' });
}

function diffPage(page) {
  const d = page.diff;
  const w = d.worst;
  const categories = Object.keys(w.categories);
  document.title = 'B less A - mbsim';
  document.getElementById('top').append(el('h1', null, 'What changed'), el('p', { class: 'soft' }, (d.a.name || 'A') + ' → ' + (d.b.name || 'B')));
  const keys = d.keys.map((k) => [el('code', null, k.section + '.' + k.key), k.a === null ? 'not given' : String(k.a), k.b === null ? 'not given' : String(k.b)]);
  const totals = ['allocated_bytes', 'cached_bytes', 'reserved_bytes', 'outside_bytes', 'device_used_bytes'];
  const names = { allocated_bytes: 'allocated, peak', cached_bytes: 'cached', reserved_bytes: 'reserved, peak', outside_bytes: 'outside PyTorch', device_used_bytes: 'device used' };
  const sums = totals.map((t) => [names[t], sized(w[t].a), sized(w[t].b), signed(w[t].difference)]);
  const legend = el('div', { class: 'legend' }, categories.filter((c) => w.categories[c].a + w.categories[c].b > 0)
    .map((c) => el('span', { class: 'item' }, swatch(c), c)), el('span', { class: 'item' }, swatch('outside'), 'outside PyTorch'), el('span', { class: 'item' }, swatch('cached'), 'cached'));
  document.getElementById('main').append(
    el('div', { class: 'columns', id: 'verdict' }, side('A', d.a, w, 'a'), side('B', d.b, w, 'b')),
    section('keys', 'Keys that differ', keys.length === 0 ? 'None.' : '', el('div', { class: 'scroll' }, table([['key', ''], ['A', ''], ['B', '']], keys))),
    section('rank', w.rank.a === w.rank.b ? 'Rank ' + w.rank.a : 'The worst rank of each', 'Differences are B less A, and add up.', legend, pairBars(w, categories),
      el('div', { class: 'columns' }, el('div', { class: 'scroll' }, table(CHANGE_COLUMNS, sums, { class: 'wide' }),
        el('h3', null, 'Allocated at the peak, by category'), table(CHANGE_COLUMNS, changeRows(w.categories, (c) => [swatch(c), c]), { class: 'wide' })),
      el('div', { class: 'scroll' }, el('h3', null, 'The same by module'), table(CHANGE_COLUMNS, changeRows(w.modules, (m) => m.replace(/_/g, ' ')), { class: 'wide' })))),
    d.ranks.length > 0 ? section('ranks', 'Every rank', 'Equal ranks folded, the biggest change first.', el('div', { class: 'scroll tall' }, rankChanges(d.ranks))) : '',
    section('scenario', 'How this page was made', '', el('pre', { tabindex: '0' }, page.command), copyButton(page.command)));
  document.getElementById('foot').append('mbsim ' + page.version + ' · simulated, not measured · 1 GiB = 1,073,741,824 bytes');
}

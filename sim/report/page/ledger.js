// SPDX-License-Identifier: Apache-2.0
'use strict';
// Where the device's memory goes on one rank, and the largest tensors.

// Parts that add up to the device: [name, bytes, colour].
function ledgerParts(job, c) {
  const l = c.ledger;
  const parts = [['outside PyTorch', l.outside_bytes, 'outside']];
  for (const name of job.categories) parts.push([name, l.categories[name], name]);
  parts.push(['cached by PyTorch', l.cached_bytes, 'cached'], ['headroom', l.headroom_bytes, 'headroom']);
  return parts;
}

function ledgerBar(parts, total) {
  const bar = el('div', { class: 'bar', role: 'img',
    'aria-label': parts.filter((p) => p[1] > 0).map((p) => p[0] + ' ' + size(p[1])).join(', ') });
  for (const [name, bytes, key] of parts) {
    if (bytes === 0) continue;
    const share = 100 * bytes / total;
    bar.append(el('span', { class: key, title: name + ': ' + size(bytes), 'data-part': bytes,
      style: 'width:' + share + '%;' + (key === 'cached' || key === 'headroom' ? '' : 'background:' + colour(key)) },
    el('b', null, share > 9 ? fixed(bytes / GIB, 2) : '')));
  }
  return bar;
}

function ledgerTable(parts, total) {
  const rows = parts.filter((p) => p[1] > 0).map(([name, bytes, key]) =>
    [[swatch(key), name], sized(bytes), percent(bytes, total)]);
  const sum = [['device'], sized(parts.reduce((n, p) => n + p[1], 0)), percent(total, total)];
  sum.kind = 'sum';
  rows.push(sum);
  return table([['part', ''], ['size', 'num'], ['of the device', 'num']], rows, { class: 'wide' });
}

function moduleTable(c) {
  const all = c.ledger.allocated_bytes;
  const rows = Object.entries(c.ledger.modules).filter((m) => m[1] > 0).sort((a, b) => b[1] - a[1])
    .map(([name, bytes]) => [name.replace(/_/g, ' '), sized(bytes), percent(bytes, all),
      el('span', { class: 'share', style: 'width:' + (100 * bytes / all) + '%;background:var(--soft)' })]);
  return table([['module', ''], ['at the peak', 'num'], ['of allocated', 'num'], ['', 'fill']], rows, { class: 'wide' });
}

function outsideTable(c) {
  const rows = Object.entries(c.ledger.outside).filter((line) => line[1] > 0)
    .map(([name, bytes]) => [name.replace(/_bytes$/, '').replace(/_/g, ' '), sized(bytes), percent(bytes, c.ledger.total_bytes)]);
  return rows.length === 0 ? null : more('What is outside PyTorch', table([['line', ''], ['size', 'num'], ['of the device', 'num']], rows));
}

function iterationTable(c) {
  const rows = c.iterations.map((i) => [whole(i.iteration), sized(i.max_allocated_bytes), sized(i.max_reserved_bytes),
    sized(i.allocated_bytes), sized(i.reserved_bytes)]);
  return more('Iterations', table([['iteration', ''], ['peak allocated so far', 'num'], ['peak reserved so far', 'num'],
    ['allocated at its end', 'num'], ['reserved at its end', 'num']], rows));
}

function rankSection(job, place) {
  const c = job.classes[place.class];
  const parts = ledgerParts(job, c);
  const total = c.ledger.total_bytes;
  const moment = momentWords(c.fits ? c.allocated_moment : c.out_of_memory.moment, job.grid.vpp);
  const where = coordinates(job, place);
  const title = 'Rank ' + place.rank + (where ? ' (' + where + ')' : '');
  return section('rank', title, (c.fits ? 'Peak in ' : 'Runs out of memory in ') + moment,
    outOfMemory(c), ledgerBar(parts, total),
    el('div', { class: 'columns' }, el('div', { class: 'scroll' }, ledgerTable(parts, total)),
      el('div', { class: 'scroll' }, moduleTable(c))), outsideTable(c), iterationTable(c));
}

function outOfMemory(c) {
  const o = c.out_of_memory;
  if (!o) return null;
  return el('p', null, 'Tried to allocate ', sized(o.tried_to_allocate_bytes), ' for ' + o.tensor + '. The GPU has ',
    sized(o.device_total_bytes), ' in total, of which ', sized(o.device_free_bytes), ' is free; ', sized(o.allocated_bytes),
    ' is allocated by PyTorch, and ', sized(o.reserved_unallocated_bytes), ' is reserved but unallocated.');
}

// The timeline that stands for a class: its own, or one of the same pipeline stage.
function timelineOf(job, place) {
  const own = job.timelines.find((t) => t.class === place.class);
  if (own) return own;
  const stage = new Map(placesOf(job).map((p) => [p.rank, p.pp]));
  return job.timelines.find((t) => stage.get(t.rank) === place.pp) || job.timelines[0];
}

// Equal ranks have equal timelines.
function nameOfTimeline(t, place) {
  return t.class === place.class ? place.rank : t.rank;
}

function tensorSection(job, place) {
  const t = timelineOf(job, place);
  const c = job.classes[t.class];
  const most = t.alive.length > 0 ? t.alive[0][4] : 1;
  const rows = t.alive.map(([name, category, module, n, bytes, largest]) => [
    el('span', { class: 'mono' }, name), el('span', { class: 'nowrap' }, swatch(category), category), module.replace(/_/g, ' '), whole(n), sized(largest), sized(bytes),
    el('span', { class: 'share', style: 'width:' + (100 * bytes / most) + '%;background:' + colour(category) })]);
  const rank = 'rank ' + nameOfTimeline(t, place);
  const note = (c.fits ? 'At the peak of ' + rank : 'When ' + rank + ' ran out of memory') + ': ' + whole(t.n_alive) + ' tensors, by kind.';
  return section('tensors', 'Largest tensors', note, el('div', { class: 'scroll tall' },
    table([['tensor', ''], ['category', ''], ['module', 'extra'], ['number', 'num extra'], ['each up to', 'num extra'], ['in all', 'num'], ['', 'fill']],
      rows, { class: 'wide' })));
}

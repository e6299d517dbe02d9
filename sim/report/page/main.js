// SPDX-License-Identifier: Apache-2.0
'use strict';
// The page of one run: verdict, ranks, the chosen rank, scenario.

function jobTitle(job) {
  const g = job.grid;
  const s = job.report.scenario;
  const parts = ['TP ' + g.tp, 'PP ' + g.pp];
  if (g.schedule) parts.push(g.schedule);
  else if (g.vpp > 1) parts.push('VPP ' + g.vpp);
  if (g.cp > 1) parts.push('CP ' + g.cp);
  if (g.ep > 1) parts.push('EP ' + g.ep);
  parts.push('DP ' + g.dp);
  return whole(g.world_size) + ' × ' + job.gpu + ' · ' + parts.join(' · ') + ' · ' + whole(s.run.iterations) + ' iterations of '
    + whole(job.n_microbatches) + ' micro-batches of ' + whole(s.train.micro_batch_size) + ' × ' + whole(s.train.seq_length) + ' tokens';
}

function verdictLines(job) {
  const v = job.report.verdict;
  if (v.fits) {
    const lines = v.n_ranks_that_retry > 0 ? [whole(v.n_ranks_that_retry)
      + ' of the ranks went on only after PyTorch had given its cache back to the device, which stalls the GPU: there is no room to spare.'] : [];
    return ['Fits: ' + size(v.headroom_bytes) + ' headroom on rank ' + v.worst_rank + ', the fullest.', lines];
  }
  const n = v.out_of_memory_ranks.length;
  const lines = [];
  if (v.needed_reserved_bytes === undefined) {
    lines.push('Capacity: rank ' + v.worst_rank + ' needs more than any device that can be simulated.');
  } else {
    lines.push('Rank ' + v.worst_rank + (n > 1 ? ', which misses by most,' : '') + ' needs ' + size(v.needed_reserved_bytes)
      + ' reserved for a peak of ' + size(v.needed_allocated_bytes) + ' allocated; there is ' + size(job.usable_bytes) + ': it misses by '
      + size(v.misses_by_bytes) + '.');
    lines.push(v.cause === 'capacity' ? 'Capacity: the tensors alone do not fit; no setting of the allocator helps.'
      : 'Fragmentation: the tensors would fit; what the allocator reserves for them does not.');
  }
  if (v.fits_with_expandable_segments === true) {
    lines.push('With expandable_segments:True it fits: at most ' + size(v.reserved_bytes_with_expandable_segments) + ' reserved (simulated).');
  } else if (v.fits_with_expandable_segments === false) {
    lines.push('With expandable_segments:True it does not fit either (simulated).');
  }
  return ['Out of memory on ' + (n > 1 ? whole(n) + ' ranks: ' + shortRanges(v.out_of_memory_ranks, 60) : 'rank ' + v.worst_rank), lines];
}

function tile(name, value, note) {
  return el('div', { class: 'tile' }, el('div', { class: 'name' }, name), el('div', { class: 'value' }, value),
    note ? el('div', { class: 'note' }, note) : null);
}

function verdict(job) {
  const v = job.report.verdict;
  const places = placesOf(job);
  const worst = places.find((p) => p.rank === v.worst_rank);
  const c = job.classes[worst.class];
  const total = c.ledger.total_bytes;
  const [answer, lines] = verdictLines(job);
  const tight = v.fits && (v.n_ranks_that_retry > 0 || c.headroom_bytes < 0.03 * total);
  const where = coordinates(job, worst);
  return el('div', { class: 'verdict' + (v.fits ? tight ? ' tight' : '' : ' bad'), id: 'verdict' },
    el('p', { class: 'answer' }, answer), lines.map((line) => el('p', null, line)),
    el('div', { class: 'tiles' },
      tile('Worst rank', String(v.worst_rank), where),
      tile('Peak allocated', sized(c.max_allocated_bytes), percent(c.max_allocated_bytes, total) + ' of the device'),
      tile('Peak reserved', sized(c.max_reserved_bytes), size(c.ledger.cached_bytes) + ' of it cached'),
      tile('Device used', sized(c.device_used_bytes), 'of ' + size(total)),
      tile('When', c.fits ? c.allocated_moment.phase : c.out_of_memory.moment.phase,
        momentWords(c.fits ? c.allocated_moment : c.out_of_memory.moment, job.grid.vpp)),
      clockTiles(job)));
}

function copyButton(text) {
  if (!navigator.clipboard) return null;
  return el('button', { type: 'button', class: 'copy', onclick: (event) => {
    const button = event.currentTarget;
    navigator.clipboard.writeText(text).then(() => { button.textContent = 'copied'; }, () => { button.textContent = 'not allowed'; });
  } }, 'copy');
}

function scenarioSection(job) {
  const all = [];
  for (const [name, keys] of Object.entries(job.report.scenario)) {
    for (const [key, value] of Object.entries(keys)) all.push([name + '.' + key, value === null ? '' : String(value)]);
  }
  return section('scenario', 'Scenario', 'What was set; everything else has its default. Save it as job.ini to run it again.',
    el('pre', { tabindex: '0' }, job.given), copyButton(job.given),
    el('h3', null, 'How this page was made'), el('pre', { tabindex: '0' }, job.command), copyButton(job.command),
    more('Every key as it was resolved', el('div', { class: 'tall' }, table([['key', ''], ['value', '']], all))));
}

// Everything below the grid belongs to the chosen rank.
function showRank(job, host, rank) {
  const place = placesOf(job).find((p) => p.rank === rank);
  const timeline = new Timeline(job, place);
  const open = [...host.querySelectorAll('details')].map((d) => d.open);
  host.replaceChildren(rankSection(job, place), ...timeline.sections(), tensorSection(job, place));
  timeline.redraw();
  host.querySelectorAll('details').forEach((d, i) => { d.open = Boolean(open[i]); });
  host.dataset.rank = rank;
  document.querySelectorAll('.cell').forEach((b) => b.setAttribute('aria-pressed', String(b.ranks.has(rank))));
}

function hashRank(job) {
  const match = /^#rank=(\d+)$/.exec(location.hash);
  const rank = match ? Number(match[1]) : -1;
  return job.ranks.some((r) => r[0] === rank) ? rank : job.report.verdict.worst_rank;
}

function runPage(job) {
  job.id = 'run';
  const name = job.report.name || 'scenario';
  document.title = name + ': ' + (job.report.verdict.fits ? 'fits' : 'out of memory') + ' - mbsim';
  document.getElementById('top').append(el('h1', null, name), el('p', { class: 'soft' }, jobTitle(job)));
  const chosen = el('div', { id: 'chosen' });
  const choose = (rank) => {
    showRank(job, chosen, rank);
    history.replaceState(null, '', '#rank=' + rank);
  };
  const pipeline = pipelineSection(job);
  document.getElementById('main').append(verdict(job), rankGrid(job, choose), chosen, pipeline || '',
    deviceSection(job) || '', scenarioSection(job));
  showRank(job, chosen, hashRank(job));
  if (pipeline) pipeline.redraw();
  window.addEventListener('hashchange', () => showRank(job, chosen, hashRank(job)));
  document.getElementById('foot').append('mbsim ' + job.report.version
    + (job.report.device.backend === 'synthetic' ? ' · simulated, not measured' : '') + ' · 1 GiB = 1,073,741,824 bytes · this page is one file and asks the network for nothing');
}

({ run: runPage, sweep: sweepPage, diff: diffPage })[DATA.kind](DATA);
document.body.dataset.ready = 'yes';

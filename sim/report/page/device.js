// SPDX-License-Identifier: Apache-2.0
'use strict';
// The job on real memory: what its GPUs or machines say beside the account.

function signedSize(bytes) {
  return (bytes < 0 ? '-' : bytes > 0 ? '+' : '') + size(Math.abs(bytes));
}

function poolTable(device) {
  const rows = device.pools.map((p) => [p.host, p.name + ' ' + p.pci_address, whole(p.n_ranks), sized(p.total_bytes),
    sized(p.rank_may_take_bytes), sized(p.held_account_bytes), sized(p.held_device_bytes), signedSize(p.left_bytes)]);
  return table([['host', ''], ['memory', ''], ['ranks', 'num'], ['in all', 'num'], ['a rank may take', 'num'],
    ['held at the end', 'num'], ['by the device', 'num'], ['not given back', 'num']], rows, { class: 'wide' });
}

function realRankTable(device) {
  const known = (bytes, text) => bytes === null ? '-' : text(bytes);
  const rows = device.ranks.map((r) => [String(r.rank), sized(r.model_reserved_bytes), sized(r.account_bytes),
    known(r.device_bytes, sized), known(r.difference_bytes, signedSize), r.fits ? 'yes' : 'out of memory']);
  return table([['rank', ''], ['model peak', 'num'], ['taken', 'num'], ['device says', 'num'], ['difference', 'num'],
    ['had enough', '']], rows, { class: 'wide' });
}

function deviceSection(job) {
  const device = job.report.device;
  if (device.backend === 'synthetic') return null;
  const note = 'backend = ' + device.backend + (device.scale > 1 ? ', a byte for ' + whole(device.scale) : '')
    + (device.fill ? ', every buffer written to' : '') + ': every operation of every rank was done.';
  return section('device', 'On real memory', note, el('div', { class: 'scroll' }, poolTable(device)),
    el('div', { class: 'scroll tall' }, realRankTable(device)));
}

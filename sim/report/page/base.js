// SPDX-License-Identifier: Apache-2.0
'use strict';
// Elements, numbers, and what the other files share.

const DATA = JSON.parse(document.getElementById('data').textContent);
const GIB = 2 ** 30;
const MIB = 2 ** 20;

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

// An element of HTML, of SVG. Texts become text nodes: nothing in the data is ever read as markup.
function el(tag, attributes, ...children) {
  return put(document.createElement(tag), attributes, children);
}

function sv(tag, attributes, ...children) {
  return put(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function whole(n) {
  return Number(n).toLocaleString('en-US');
}

function fixed(x, digits) {
  return Number(x).toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function size(bytes) {
  if (bytes === 0) return '0';
  if (Math.abs(bytes) >= GIB) return fixed(bytes / GIB, 2) + '\u00a0GiB';
  if (Math.abs(bytes) >= MIB) return fixed(bytes / MIB, 1) + '\u00a0MiB';
  return fixed(bytes / 1024, 1) + '\u00a0KiB';
}

// Numbers that may be very large, such as tokens a second.
function short(n) {
  return n >= 1e7 ? fixed(n / 1e6, 1) + '\u00a0M' : whole(Math.round(n));
}

function percent(part, all) {
  return all > 0 ? fixed(100 * part / all, 1) + '\u00a0%' : '';
}

// A size for people, with the exact number in its title and for programs.
function sized(bytes, attributes) {
  return el('span', { title: whole(bytes) + ' bytes', 'data-bytes': bytes, ...attributes }, size(bytes));
}

function colour(name) {
  return 'var(--' + name.replace(/[ _]/g, '-') + ')';
}

function swatch(name) {
  const plain = name !== 'cached' && name !== 'headroom';
  return el('span', { class: 'swatch ' + name, style: plain ? 'background:' + colour(name) : null,
    'aria-hidden': 'true' });
}

// [0,1,2,5] to "0-2,5".
function ranges(numbers) {
  const parts = [];
  for (let i = 0; i < numbers.length; i++) {
    let k = i;
    while (k + 1 < numbers.length && numbers[k + 1] === numbers[k] + 1) k++;
    parts.push(k > i ? numbers[i] + (k === i + 1 ? ',' : '-') + numbers[k] : String(numbers[i]));
    i = k;
  }
  return parts.join(',');
}

// A long list of ranges cut after whole ranges.
function shortRanges(numbers, length) {
  const text = ranges(numbers);
  if (text.length <= length) return text;
  return text.slice(0, text.lastIndexOf(',', length)) + ', …';
}

function section(id, title, note, ...children) {
  const heading = el('h2', { id: id + '-title' }, title);
  const head = el('div', { class: 'head' }, heading, note ? el('span', { class: 'soft' }, note) : null);
  return el('section', { id, 'aria-labelledby': id + '-title' }, head, ...children);
}

// columns: [title, "num" or ""]; each row a list of cells (text or node).
function table(columns, rows, attributes) {
  const name = (c) => (c[1] === '' ? null : c[1]);
  return el('table', attributes,
    el('thead', null, el('tr', null, columns.map((c) => el('th', { class: name(c), scope: 'col' }, c[0])))),
    el('tbody', null, rows.map((row) => el('tr', { class: row.kind },
      row.map((cell, i) => el('td', { class: name(columns[i]) }, cell))))));
}

function more(title, ...children) {
  return el('details', null, el('summary', null, title), el('div', { class: 'scroll' }, ...children));
}

// "iteration 2, backward of micro-batch 1, chunk 2, layer 35, fc2"
function momentWords(m, vpp) {
  const parts = [];
  if (m.iteration > 0) parts.push('iteration ' + m.iteration);
  let phase = m.phase;
  if (m.microbatch !== null) phase += ' of micro-batch ' + m.microbatch;
  parts.push(phase);
  if (m.chunk !== null && vpp > 1) parts.push('chunk ' + m.chunk);
  if (m.layer !== null) parts.push('layer ' + m.layer);
  parts.push(m.module);
  return parts.join(', ');
}

// Draw again when the width changes; `draw` gets the width in pixels.
function redrawn(host, draw) {
  let width = 0;
  const again = () => {
    const now = Math.floor(host.clientWidth);
    if (now === width || now === 0) return;
    width = now;
    draw(width);
  };
  new ResizeObserver(() => requestAnimationFrame(again)).observe(host);
  host.redraw = () => { width = 0; again(); };
  return host;
}

// Round steps for an axis from 0 to `max`: at most `n` of them.
function steps(max, n) {
  const raw = max / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  const unit = [1, 2, 2.5, 5, 10].find((u) => u * power >= raw) * power;
  const list = [];
  for (let v = 0; v <= max * 1.0001; v += unit) list.push(v);
  return list;
}

// Which part of a call's text was in view. A person can approve only a text that they could read:
// Approve is locked until all of it was on the screen at some time.

const APART_PX = 3; // parts of a pixel, and the space between two lines
const ABOVE_PX = 8; // one line of what was seen already stays in view
const ROOM_PX_MIN = 48; // on a very low screen the buttons cover all; the text must stay reachable
const watched = new Set();
let isDue = false;

export class Reading {
  constructor(changed) {
    this.changed = changed;
    this.seen = []; // [from, to] in pixels of the text, sorted, without overlap
    this.height = 0;
    this.isWhole = false;
  }

  // The text that is drawn now. What was seen before stays seen.
  watch(text) {
    this.text = text;
    if (!text) this.isWhole = true; // a question: its answer allows nothing
    if (this.isWhole) return;
    // Called when the text gets a place on the screen, and when its size changes.
    this.sized?.disconnect();
    this.sized = new ResizeObserver(() => this.measure());
    this.sized.observe(text);
  }

  get percent() {
    const pixels = this.seen.reduce((sum, [from, to]) => sum + to - from, 0);
    return this.height ? Math.min(99, Math.floor((100 * pixels) / this.height)) : 0;
  }

  measure() {
    const { text } = this;
    if (this.isWhole || !text?.isConnected || document.hidden) return;
    const box = text.getBoundingClientRect();
    if (!box.height) return;
    watched.add(this);
    this.scale(box.height);
    const room = roomOf(text);
    const from = Math.max(0, room.top - box.top);
    const to = Math.min(box.height, room.bottom - box.top);
    if (to - from > 1) this.add(from, to);
  }

  // The same lines at another width.
  scale(height) {
    const by = this.height ? height / this.height : 1;
    this.height = height;
    if (by !== 1) this.seen = this.seen.map(([from, to]) => [from * by, to * by]);
  }

  add(from, to) {
    const before = this.percent;
    const parts = [...this.seen, [from, to]].sort((a, b) => a[0] - b[0]);
    this.seen = [];
    for (const part of parts) {
      const last = this.seen.at(-1);
      if (last && part[0] - last[1] <= APART_PX) last[1] = Math.max(last[1], part[1]);
      else this.seen.push([...part]);
    }
    const [[first, last]] = this.seen;
    this.isWhole = first <= APART_PX && last >= this.height - APART_PX;
    if (this.isWhole) this.forget();
    if (this.isWhole || this.percent !== before) this.changed();
  }

  forget() {
    watched.delete(this);
    this.sized?.disconnect();
  }

  // Scroll to the first part that was not in view.
  showNext() {
    this.measure();
    if (this.isWhole || !this.text.isConnected) return;
    const [first] = this.seen;
    const gap = !first || first[0] > APART_PX ? 0 : first[1];
    const room = roomOf(this.text);
    const top = this.text.getBoundingClientRect().top + gap;
    room.scroller.scrollTop += top - room.top - ABOVE_PX;
    this.measure();
  }
}

// The part of the screen where this text can be seen: inside of everything that scrolls, above the
// buttons that stay in view.
function roomOf(text) {
  const room = { top: 0, bottom: innerHeight, scroller: document.scrollingElement };
  let scroller = null;
  for (let each = text.parentElement; each; each = each.parentElement) {
    if (!/auto|scroll|hidden/.test(getComputedStyle(each).overflowY)) continue;
    const box = each.getBoundingClientRect();
    room.top = Math.max(room.top, box.top);
    room.bottom = Math.min(room.bottom, box.bottom);
    scroller ??= each.scrollHeight > each.clientHeight ? each : null;
  }
  room.scroller = scroller ?? room.scroller;
  const buttons = text.closest(".prompt")?.querySelector(".options");
  const box = text.getBoundingClientRect();
  const over = buttons?.getBoundingClientRect();
  const isBelow = over && over.left < box.right && over.right > box.left;
  const above = isBelow ? Math.min(room.bottom, over.top) : room.bottom;
  if (above - room.top >= ROOM_PX_MIN) room.bottom = above;
  return room;
}

// Also after a card moved without a scroll: another one above it was answered and is gone.
export function measureSoon() {
  if (isDue || !watched.size) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    for (const each of [...watched]) {
      if (each.text.isConnected) each.measure();
      else watched.delete(each); // it comes back when its text has a place again
    }
  });
}

addEventListener("scroll", measureSoon, { capture: true, passive: true });
addEventListener("resize", measureSoon);
document.addEventListener("visibilitychange", measureSoon);

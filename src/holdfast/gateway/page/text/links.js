// Which addresses may be linked, and how they are shown. Pure.

const KNOWN = new Set(["http:", "https:", "mailto:"]);

// The address as the browser would open it, or null for one that is never linked: a script, data,
// a place inside this page, or one whose host looks different from how it is written.
export function safeUrl(given) {
  let url;
  try {
    url = new URL(given);
  } catch {
    return null;
  }
  if (!KNOWN.has(url.protocol) || url.username || url.password) return null;
  return url.href;
}

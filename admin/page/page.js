'use strict';
// Times are shown in the zone of the browser, and figures are replaced as the server sends them.

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const calendar = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

function localize(root) {
  for (const time of root.querySelectorAll('time[datetime]')) {
    const at = new Date(time.dateTime);
    const far = Math.abs(at - Date.now()) > 20 * 3600 * 1000;
    time.textContent = (far ? calendar : clock).format(at);
    time.title = at.toISOString();
  }
}

// replace shows new figures, and leaves the focus, what is open and what is typed as it was.
function replace(live, html) {
  const next = document.createElement('template');
  next.innerHTML = html;
  localize(next.content);
  for (const open of live.querySelectorAll('details[open][id]')) {
    next.content.getElementById(open.id)?.setAttribute('open', '');
  }
  for (const field of live.querySelectorAll('input[id], select[id]')) {
    const same = next.content.getElementById(field.id);
    if (same) same.value = field.value;
  }
  const focused = live.contains(document.activeElement) ? document.activeElement : null;
  // A menu or a selection would close, and a field would lose its cursor.
  if (focused?.matches('select, input') || !document.getSelection().isCollapsed) return;
  live.replaceChildren(next.content);
  if (focused?.id) document.getElementById(focused.id)?.focus({ preventScroll: true });
}

localize(document);
const live = document.getElementById('live');
if (live) {
  const source = new EventSource(live.dataset.source);
  source.onmessage = (event) => replace(live, event.data);
  source.onopen = () => document.body.classList.remove('stale');
  source.onerror = () => document.body.classList.add('stale');
}

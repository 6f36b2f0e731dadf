'use strict';
// Times are shown in the zone of the browser, and figures are asked for again while somebody looks.

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

// replace shows the figures of another page, and leaves the focus, what is open and what is typed as it was.
function replace(live, page) {
  const next = page.getElementById('live');
  localize(next);
  for (const open of live.querySelectorAll('details[open][id]')) {
    page.getElementById(open.id)?.setAttribute('open', '');
  }
  for (const field of live.querySelectorAll('input[id], select[id]')) {
    const same = page.getElementById(field.id);
    if (same) same.value = field.value;
  }
  const focused = live.contains(document.activeElement) ? document.activeElement : null;
  // A menu or a selection would close, and a field would lose its cursor.
  if (focused?.matches('select, input') || !document.getSelection().isCollapsed) return;
  live.replaceChildren(...next.childNodes);
  if (focused?.id) document.getElementById(focused.id)?.focus({ preventScroll: true });
}

localize(document);
const live = document.getElementById('live');

async function poll() {
  try {
    if (!document.hidden) {
      const response = await fetch(location.href);
      replace(live, new DOMParser().parseFromString(await response.text(), 'text/html'));
      document.body.classList.remove('stale');
    }
  } catch { // nobody answers, or the answer has no figures
    document.body.classList.add('stale');
  }
  setTimeout(poll, live.dataset.every);
}

if (live) setTimeout(poll, live.dataset.every);

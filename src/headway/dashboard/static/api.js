// All requests to the server. The token is in the URL after #, which browsers do not send.

const KEY = "headway-token";

function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY);
}

let token = takeToken();

export const hasToken = () => token !== null;

export function setToken(text) {
  token = text;
  if (text === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, text);
}

export class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token !== null) headers.authorization = `Bearer ${token}`;
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, body.problem ?? `the server answered ${answer.status}`);
  return body;
}

export function look(path, question = {}) {
  const given = Object.entries(question).filter(([, value]) => value !== "" && value !== null);
  return ask(`/api/v1/${path}?${new URLSearchParams(given)}`);
}

export const order = (wish) =>
  ask("/api/v1/orders", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(wish),
  });

// The API's routes and fields, by Swagger UI. The schema needs a key where the server has keys, and so does every request
// that is tried out: both send the key of this tab.

import { currentKey, keyHeaders, setKey } from "./key";
import { loginProblem, readSchema } from "./server";

declare const SwaggerUIBundle: (options: object) => void;

interface TriedRequest {
  headers: Record<string, string>;
}

const at = (id: string) => document.querySelector<HTMLElement>(`#${id}`);

async function open(): Promise<void> {
  let spec: object;
  try {
    spec = await readSchema();
  } catch (error) {
    at("login")?.removeAttribute("hidden");
    at("login-error")?.replaceChildren(loginProblem(error, currentKey()));
    at("key")?.focus();
    return;
  }
  at("login")?.setAttribute("hidden", "");
  const root = new URL(".", location.href).href.replace(/\/$/, ""); // behind a proxy's prefix too
  SwaggerUIBundle({
    spec: { ...spec, servers: [{ url: root }] },
    dom_id: "#api",
    validatorUrl: null,
    deepLinking: true,
    docExpansion: "list",
    requestInterceptor: (request: TriedRequest) =>
      Object.assign(request, { headers: { ...request.headers, ...keyHeaders() } }),
  });
}

at("login")?.addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(document.querySelector<HTMLInputElement>("#key")?.value ?? "", false);
  void open();
});
void open();

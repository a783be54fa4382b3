// The API's routes and fields, by Swagger UI. The schema needs a key where the server has keys, and so does every request
// that is tried out: both send the key of this tab.

import { keyHeaders, loginProblem, readSchema, setKey } from "./server.js";

const at = (id) => document.getElementById(id);

async function open() {
  let spec;
  try {
    spec = await readSchema();
  } catch (error) {
    at("login").hidden = false;
    at("login-error").textContent = loginProblem(error, at("key").value);
    at("key").focus();
    return;
  }
  at("login").hidden = true;
  const root = new URL(".", location.href).href.replace(/\/$/, ""); // behind a proxy's prefix too
  SwaggerUIBundle({
    spec: { ...spec, servers: [{ url: root }] }, dom_id: "#api", validatorUrl: null, deepLinking: true,
    docExpansion: "list", requestInterceptor: (request) => Object.assign(request, { headers: { ...request.headers, ...keyHeaders() } }),
  });
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(at("key").value);
  open();
});
open();

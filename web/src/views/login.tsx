// Asks for the key.

import { useEffect, useRef } from "preact/hooks";
import { isRemembered, setKey } from "../key";
import { strings } from "../strings";

export function Login({ problem, onLogin }: { problem: string; onLogin: () => void }) {
  const key = useRef<HTMLInputElement>(null);
  const remember = useRef<HTMLInputElement>(null);
  useEffect(() => key.current?.focus(), []);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setKey(key.current?.value ?? "", remember.current?.checked ?? false);
    onLogin();
  };
  return (
    <form id="login" aria-labelledby="login-title" onSubmit={submit}>
      <h2 id="login-title">{strings.logIn}</h2>
      <p>{strings.logInWhy}</p>
      <label>
        {strings.key} <input id="key" type="password" autocomplete="off" required ref={key} />
      </label>
      <label class="check">
        <input id="remember" type="checkbox" defaultChecked={isRemembered()} ref={remember} /> {strings.remember}
      </label>
      <button type="submit" class="primary">
        {strings.logIn}
      </button>
      <p id="login-error" role="alert">
        {problem}
      </p>
    </form>
  );
}

// A button that asks once more.

import { useState } from "preact/hooks";

interface Props {
  text: string;
  /** The second time. */
  sure: string;
  onSure: () => void;
}

export function Sure({ text, sure, onSure }: Props) {
  const [isSure, setSure] = useState(false);
  return <button onClick={isSure ? onSure : () => setSure(true)}>{isSure ? sure : text}</button>;
}

// A table that scrolls by itself where it is wider than the screen.

import type { ComponentChild } from "preact";

interface Props {
  id: string;
  label: string;
  columns: readonly string[];
  rows: ComponentChild[][];
  /** Shown in place of rows. */
  empty: string;
}

export function Table({ id, label, columns, rows, empty }: Props) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table id={id}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column}>{column}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((cells, row) => (
            <tr key={row}>
              {cells.map((cell, place) => (
                <td key={place}>{cell}</td>
              ))}
            </tr>
          ))}
          {rows.length === 0 && (
            <tr>
              <td colSpan={columns.length}>{empty}</td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

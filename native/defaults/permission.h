// What a variant must ask the operating system for before its first instruction. By default: nothing.
#pragma once

namespace sf {

inline bool ask_permission() { return true; }

}  // namespace sf

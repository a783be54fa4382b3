// Linux lets a process use AMX's tiles once it has asked for their state.
#pragma once

namespace sf {

// Asks on behalf of this process. False: refused.
bool ask_for_tiles();

}  // namespace sf

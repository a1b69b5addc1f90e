// Devices that do not answer any more. A call that would wait for one waits for ever, so whoever is about to free
// something there or to wait asks here first.
#pragma once

namespace gm {

// From a watchdog: the work of this device did not end. It stays so until the device is seen to have finished after
// all.
void set_hung(int device, bool hung);
bool is_hung(int device);

}  // namespace gm

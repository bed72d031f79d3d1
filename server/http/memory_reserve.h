#pragma once

namespace minfer {

// Memory that is set aside for the threads that serve everybody. Where memory ends, the thread that reads or parses what one client sent
// gets std::bad_alloc; the I/O thread's and the engine's small allocations are served from the reserve, which is set aside again as soon as
// there is memory.

/// Sets the reserve aside, unless it is. Any thread.
void set_memory_aside();
/// Whether operator new may take the reserve on this thread from now on; returns whether it might before. At first it may not.
bool use_memory_reserve(bool may);

/// While it lives, what this thread allocates is of a client's size: the reserve is not for it.
class ClientSizedAllocations {
 public:
  ClientSizedAllocations() : might_(use_memory_reserve(false)) {}
  ~ClientSizedAllocations() { use_memory_reserve(might_); }
  ClientSizedAllocations(const ClientSizedAllocations&) = delete;
  ClientSizedAllocations& operator=(const ClientSizedAllocations&) = delete;

 private:
  const bool might_;
};

}  // namespace minfer

#pragma once

namespace minfer {

// Memory that is set aside for the threads that serve everybody. If memory runs out, the thread
// that reads or parses one client's data gets std::bad_alloc. Small allocations of the I/O thread
// and the engine come from the reserve, which is set aside again as soon as there is memory.

/// Sets the reserve aside, unless it is set aside already. Any thread.
void set_memory_aside();
/// Sets whether operator new may take the reserve on this thread from now on (at first not); returns the previous setting.
bool use_memory_reserve(bool may);

/// While it lives, this thread's allocations have a size that a client chooses: the reserve is not for them.
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

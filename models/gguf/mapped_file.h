#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace minfer {

/// Makes reads of a mapped range survive the loss of the file behind it. SIGBUS is raised by a page beyond the end of a file that shrank,
/// or by a page that a failing device cannot deliver, and ends the process. While a guard lives, such a read gives zeros instead and trips
/// the guard. The reader of the range calls tripped() afterwards and reports the error.
///
/// The first guard installs a handler of SIGBUS for the process. A SIGBUS outside all guarded ranges goes to the handler that was there
/// before, or to the default action. Any thread may read a guarded range; the object itself is not shared.
class BusGuard {
 public:
  /// `range` is a mapping that starts on a page. Throws Error beyond kMaxRanges guards.
  explicit BusGuard(std::span<const std::byte> range);
  BusGuard(BusGuard&& other) noexcept;
  BusGuard& operator=(BusGuard&&) = delete;
  ~BusGuard();

  bool tripped() const;

  static constexpr size_t kMaxRanges = 4096;

 private:
  static constexpr size_t kNone = kMaxRanges;
  size_t slot_ = kNone;  // in the table of ranges that the handler searches
};

/// Owns a read-only mapping of a whole file. Move-only; views of the bytes stay valid after a move. Reads of the bytes never end the
/// process. If the file shrinks, the lost bytes read as zeros and check_intact() reports it.
class MappedFile {
 public:
  /// Throws FileError if the file is missing, unreadable, empty or not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&&) noexcept = default;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return {mapping_.get(), mapping_.get_deleter().bytes}; }

  /// Throws FileError if the file became shorter, or if a part of it could not be read. Costs a system call.
  void check_intact() const;

 private:
  /// Owns a file descriptor.
  class Descriptor {
   public:
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept;
    Descriptor& operator=(Descriptor&&) = delete;
    ~Descriptor();
    int number() const { return number_; }

   private:
    int number_;  // -1: none
  };
  struct Unmap {
    size_t bytes;
    void operator()(const std::byte* address) const;
  };
  using Mapping = std::unique_ptr<const std::byte, Unmap>;

  static Descriptor open(const std::filesystem::path& path);
  static Mapping map(const Descriptor& file, const std::filesystem::path& path);

  std::filesystem::path path_;
  Descriptor file_;
  Mapping mapping_;
  BusGuard guard_;  // goes before the mapping
};

}  // namespace minfer

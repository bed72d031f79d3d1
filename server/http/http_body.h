#pragma once

#include <memory>
#include <new>
#include <string>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/optional/optional.hpp>
#include <boost/system/errc.hpp>

#include "server/http/http_connection.h"
#include "server/http/memory_reserve.h"

namespace minfer {

/// What one request body has of the budget; given back at the end. I/O thread.
class BodyShare {
 public:
  BodyShare() = default;
  explicit BodyShare(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  BodyShare(BodyShare&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  BodyShare& operator=(BodyShare&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~BodyShare() { give_back(); }

  void give_back() {
    if (budget_) budget_->used -= std::exchange(bytes_, 0);
  }

  /// False if the budget does not allow it. A small body is always allowed, so that those who fill the budget
  /// with large ones lock out nobody else.
  bool grow(size_t bytes) {
    constexpr size_t kSmallBytes = 32u << 10;
    if (bytes_ + bytes > kSmallBytes && budget_->used + bytes > budget_->limit) return false;
    budget_->used += bytes;
    bytes_ += bytes;
    return true;
  }

 private:
  std::shared_ptr<BodyBudget> budget_;
  size_t bytes_ = 0;
};

/// A body for Boost.Beast's parser that takes memory as bytes arrive, not as Content-Length promises them,
/// and no more than the budget has.
struct CountedBody {
  struct value_type {
    std::string text;
    BodyShare share;
  };

  class reader {
   public:
    template <class Header>
    reader(Header&, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }

    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      const size_t size = boost::asio::buffer_size(buffers);
      error = {};
      if (!body_.share.grow(size)) {
        error = make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      try {
        const ClientSizedAllocations client_sized;
        for (const boost::asio::const_buffer bytes : boost::beast::buffers_range_ref(buffers))
          body_.text.append(static_cast<const char*>(bytes.data()), bytes.size());
      } catch (const std::bad_alloc&) {
        std::string().swap(body_.text);  // what the answer is made with
        error = make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      return size;
    }

    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace minfer

#pragma once

#include <string>

#if __has_include(<cupti_callbacks.h>)
#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_result.h>
#include <cupti_version.h>
#if CUPTI_API_VERSION >= 130000
#define MINFER_HAS_CUPTI_HEADERS 1
#endif
#endif

namespace minfer::cuda {

/// Functions of libcupti. The library is loaded when it is first needed, from the loader's path or a toolkit's
/// folders: the program runs without it. It is never closed, since CUPTI leaves hooks in the driver.
class CuptiFunctions {
 protected:
  /// Throws DeviceError if there is no library; the text says where it was looked for.
  CuptiFunctions();
  /// Null: the library is too old to have it.
  void* find(const char* symbol) const;
  /// Throws DeviceError if the library does not have it.
  void* found(const char* symbol) const;

 private:
  void* library_ = nullptr;
};
/// A member of a class of CuptiFunctions.
#define MINFER_CUPTI_FUNCTION(member, function) \
  decltype(&function) member = reinterpret_cast<decltype(&function)>(found(#function))

/// While one lives, CUPTI must not be detached from the process (cuptiFinalize): it would lose its set-up. Any thread.
class CuptiHold {
 public:
  CuptiHold();
  ~CuptiHold();
  CuptiHold(const CuptiHold&) = delete;
  CuptiHold& operator=(const CuptiHold&) = delete;
  static bool any();
};

}  // namespace minfer::cuda

#ifdef MINFER_HAS_CUPTI_HEADERS

namespace minfer::cuda {

/// The functions that tracing uses.
class CuptiLibrary : CuptiFunctions {
 public:
  /// The library, the same for every caller. Null if there is none; `error` then says where it was looked for.
  static const CuptiLibrary* load(std::string& error);

  /// The text of `result`, with its number.
  std::string text(CUptiResult result) const;

  MINFER_CUPTI_FUNCTION(get_version, cuptiGetVersion);
  MINFER_CUPTI_FUNCTION(get_timestamp, cuptiGetTimestamp);
  MINFER_CUPTI_FUNCTION(subscribe, cuptiSubscribe);
  MINFER_CUPTI_FUNCTION(unsubscribe, cuptiUnsubscribe);
  MINFER_CUPTI_FUNCTION(finalize, cuptiFinalize);
  MINFER_CUPTI_FUNCTION(enable, cuptiActivityEnable);
  MINFER_CUPTI_FUNCTION(disable, cuptiActivityDisable);
  MINFER_CUPTI_FUNCTION(flush_all, cuptiActivityFlushAll);
  MINFER_CUPTI_FUNCTION(set_attribute, cuptiActivitySetAttribute);
  MINFER_CUPTI_FUNCTION(register_callbacks, cuptiActivityRegisterCallbacks);
  MINFER_CUPTI_FUNCTION(register_timestamp_callback, cuptiActivityRegisterTimestampCallback);
  MINFER_CUPTI_FUNCTION(next_record, cuptiActivityGetNextRecord);
  MINFER_CUPTI_FUNCTION(num_dropped, cuptiActivityGetNumDroppedRecords);
  MINFER_CUPTI_FUNCTION(push_external_id, cuptiActivityPushExternalCorrelationId);
  MINFER_CUPTI_FUNCTION(pop_external_id, cuptiActivityPopExternalCorrelationId);
  decltype(&cuptiSubscribe_v2) subscribe_v2 =
      reinterpret_cast<decltype(&cuptiSubscribe_v2)>(find("cuptiSubscribe_v2"));  ///< null in older libraries

 private:
  MINFER_CUPTI_FUNCTION(result_string_, cuptiGetResultString);
};

}  // namespace minfer::cuda

#endif  // MINFER_HAS_CUPTI_HEADERS

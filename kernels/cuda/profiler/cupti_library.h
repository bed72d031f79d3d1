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

/// Opens libcupti, from the loader's path or a toolkit's folders; the program runs without it. Null if there is none; `error` then says
/// where it was looked for. Never closed, since CUPTI leaves hooks in the driver.
void* open_cupti(std::string& error);

/// While one lives, CUPTI is not to be detached from the process (cuptiFinalize): it would lose what it has set up. Any thread.
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

/// The functions of libcupti, which is loaded when it is first needed: the program runs without it. Stays loaded, since CUPTI leaves
/// hooks in the driver.
class CuptiLibrary {
 public:
  /// The library, the same for every caller. Null if there is none; `error` then says where it was looked for.
  static const CuptiLibrary* load(std::string& error);

  /// What `result` means, with its number.
  std::string text(CUptiResult result) const;

  decltype(&cuptiGetVersion) get_version = nullptr;
  decltype(&cuptiGetTimestamp) get_timestamp = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiSubscribe_v2) subscribe_v2 = nullptr;  ///< null in older libraries
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiFinalize) finalize = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivitySetAttribute) set_attribute = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp_callback = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) num_dropped = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push_external_id = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_external_id = nullptr;

 private:
  bool find_functions(void* handle, std::string& error);
  decltype(&cuptiGetResultString) result_string_ = nullptr;
};

}  // namespace minfer::cuda

#endif  // MINFER_HAS_CUPTI_HEADERS

#pragma once

#include <string>
#include <string_view>

#include "kernels/device_sample.h"
#include "profiling/host/host_sample.h"
#include "profiling/json/json_field.h"

namespace minfer {

inline constexpr std::string_view kHostSchema = "minfer.host/1", kDeviceSchema = "minfer.device/1";

/// Appends a line of JSON (schemas minfer.host/1 and minfer.device/1, see host.schema.json and device.schema.json), newline included.
void append_host_line(std::string& out, const HostSample& sample);
void append_device_line(std::string& out, const DeviceSample& sample);
/// Reads what these append. Throws FileError, naming the field.
HostSample host_sample_of(const JsonField& line);
DeviceSample device_sample_of(const JsonField& line);

}  // namespace minfer

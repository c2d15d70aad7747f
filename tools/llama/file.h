// SPDX-License-Identifier: Apache-2.0
//
// Reading a file from front to back, for the two formats of this folder.

#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

namespace cairn::llama {

class InputFile {
 public:
  explicit InputFile(const std::string& path) : stream_(path, std::ios::binary | std::ios::ate) {
    const std::streamoff size = stream_ ? static_cast<std::streamoff>(stream_.tellg()) : -1;
    if (size < 0) {
      error_ = std::string("cannot open: ") + std::strerror(errno);
      return;
    }
    size_bytes_ = static_cast<uint64_t>(size);
    stream_.seekg(0);
  }

  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  uint64_t size_bytes() const { return size_bytes_; }
  uint64_t offset() const { return offset_; }
  uint64_t remaining_bytes() const { return size_bytes_ - offset_; }

  // Reads exactly `bytes`; false and error() if the file does not have them.
  bool Read(void* to, size_t bytes) {
    if (!stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) {
      error_ = "cannot read " + std::to_string(bytes) + " bytes at offset " +
               std::to_string(offset_) + " of " + std::to_string(size_bytes_);
      return false;
    }
    offset_ += bytes;
    return true;
  }

 private:
  std::ifstream stream_;
  std::string error_;
  uint64_t size_bytes_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace cairn::llama

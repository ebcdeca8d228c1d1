// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace trainer {

namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;
constexpr const char* kDescription = "checkpoint.json";
constexpr const char* kTokenizer = "tokenizer.model";
constexpr const char* kPrefix = "step-";
constexpr const char* kUnfinished = ".unfinished";  // being written, or being removed

const char* file_of(StateKind kind) {
  switch (kind) {
    case StateKind::Weights:
      return "weights";
    case StateKind::FirstMoments:
      return "first-moments";
    case StateKind::SecondMoments:
      return "second-moments";
  }
  return "?";
}

constexpr std::array kKinds = {StateKind::Weights, StateKind::FirstMoments, StateKind::SecondMoments};

std::string system_error(const char* what, const fs::path& path) {
  return fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(errno));
}

// An open file. Failures throw Error.
class File {
 public:
  File(const fs::path& path, int flags)
      : path_(path), descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) throw Error(system_error("open", path));
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  // So that a full disk is found out here, and not in the middle of a rank's part.
  void reserve(std::size_t bytes) const {
    if (int error = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes)); error != 0) {
      errno = error;
      throw Error(system_error("reserve room for", path_));
    }
  }
  void write(const void* data, std::size_t bytes, std::size_t offset) const {
    const auto* from = static_cast<const std::byte*>(data);
    while (bytes > 0) {
      ssize_t written = pwrite(descriptor_, from, bytes, static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) throw Error(system_error("write", path_));
      from += written;
      offset += static_cast<std::size_t>(written);
      bytes -= static_cast<std::size_t>(written);
    }
  }
  void sync() const {
    if (fsync(descriptor_) != 0) throw Error(system_error("write", path_));
  }

 private:
  fs::path path_;
  int descriptor_;
};

void write_file(const fs::path& path, const std::string& content) {
  File file(path, O_WRONLY | O_CREAT | O_EXCL);
  file.write(content.data(), content.size(), 0);
  file.sync();
}

nlohmann::json to_json(const CheckpointInfo& info, Index elements) {
  const ModelShape& s = info.shape;
  return {{"format", kFormat},
          {"elements", elements},
          {"step", info.step},
          {"updates", info.updates},
          {"loss_scale", info.loss_scale},
          {"good_steps", info.good_steps},
          {"model",
           {{"layers", s.layers},
            {"width", s.width},
            {"heads", s.heads},
            {"context", s.context},
            {"vocabulary", s.vocabulary},
            {"tied", s.tied},
            {"dropout", s.dropout}}},
          {"tokenizer", info.tokenizer.empty() ? "bytes" : kTokenizer},
          {"seed", info.seed},
          {"batch", info.batch},
          {"data", info.data},
          {"layout", info.layout}};
}

CheckpointInfo from_json(const nlohmann::json& json) {
  const nlohmann::json& model = json.at("model");
  return {.step = json.at("step"),
          .updates = json.at("updates"),
          .loss_scale = json.at("loss_scale"),
          .good_steps = json.at("good_steps"),
          .shape = {.layers = model.at("layers"),
                    .width = model.at("width"),
                    .heads = model.at("heads"),
                    .context = model.at("context"),
                    .vocabulary = model.at("vocabulary"),
                    .tied = model.at("tied"),
                    .dropout = model.at("dropout")},
          .seed = json.at("seed"),
          .batch = json.at("batch"),
          .data = json.at("data"),
          .layout = json.at("layout")};
}

// "" for bytes.
std::string read_tokenizer(const fs::path& folder, const nlohmann::json& json) {
  if (json.value("tokenizer", "bytes") == "bytes") return "";
  std::ifstream stream(folder / kTokenizer, std::ios::binary);
  if (!stream) throw Error(system_error("read", folder / kTokenizer));
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// Renamed first, so that no half of it is ever taken for a checkpoint.
void remove_checkpoint(const fs::path& path) {
  fs::path doomed = path;
  doomed += kUnfinished;
  fs::remove_all(doomed);
  fs::rename(path, doomed);
  fs::remove_all(doomed);
}

// Of a run that was killed.
void remove_unfinished(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kPrefix) && name.ends_with(kUnfinished)) found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove_all(path);
}

}  // namespace

std::vector<fs::path> list_checkpoints(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kPrefix) && !name.ends_with(kUnfinished)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Checkpoint::Checkpoint(const fs::path& path) : path_(path) {
  if (!fs::exists(path_)) throw Error(fmt::format("there is no checkpoint {}", path.string()));
  if (!fs::exists(path_ / kDescription)) {
    std::vector<fs::path> found = list_checkpoints(path);
    if (found.empty())
      throw Error(fmt::format("there is no checkpoint in {}: it has neither a {} nor folders {}N",
                              path.string(), kDescription, kPrefix));
    path_ = found.back();
  }
  Index elements = 0;
  try {
    std::ifstream stream(path_ / kDescription);
    if (!stream) throw Error(std::strerror(errno));
    nlohmann::json json = nlohmann::json::parse(stream);
    if (json.at("format") != kFormat)
      throw Error(
          fmt::format("its format is {}, but this program reads {}", json.at("format").dump(), kFormat));
    info_ = from_json(json);
    info_.tokenizer = read_tokenizer(path_, json);
    elements = json.at("elements");
  } catch (const std::exception& error) {
    throw Error(fmt::format("cannot read {}: {}", (path_ / kDescription).string(), error.what()));
  }
  if (elements != parameter_count(model_units(info_.shape)))
    throw Error(fmt::format("{} contradicts itself: a model of this shape has {} parameters, not {}",
                            (path_ / kDescription).string(), parameter_count(model_units(info_.shape)),
                            elements));
  bytes_ = static_cast<std::size_t>(elements) * sizeof(float);
  for (StateKind kind : kKinds) map(kind);
}

Checkpoint::~Checkpoint() {
  for (const float* state : states_)
    if (state != nullptr) munmap(const_cast<float*>(state), bytes_);
}

void Checkpoint::map(StateKind kind) {
  const fs::path path = path_ / file_of(kind);
  File file(path, O_RDONLY);
  struct stat status {};
  if (fstat(file.descriptor(), &status) != 0) throw Error(system_error("read", path));
  if (static_cast<std::size_t>(status.st_size) != bytes_)
    throw Error(fmt::format("{} has {} bytes, but should have {}: take an older checkpoint", path.string(),
                            status.st_size, bytes_));
  void* mapped = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (mapped == MAP_FAILED) throw Error(system_error("map", path));
  states_[static_cast<std::size_t>(kind)] = static_cast<const float*>(mapped);
}

ModelStates::Source Checkpoint::source() const {
  return [this](StateKind kind, const UnitLayout& layout, float* values) {
    const float* all = states_[static_cast<std::size_t>(kind)];
    for (const LocalParameter& parameter : layout.parameters())
      layout.for_each_run(parameter, [&](Index place, Index number, Index length) {
        std::copy_n(all + number, length, values + place);
      });
  };
}

std::string CheckpointWriter::write(RankGroup& world, const CheckpointInfo& info,
                                    const States& states) const {
  const fs::path path = folder_ / fmt::format("{}{:08}", kPrefix, info.step);
  fs::path unfinished = path;
  unfinished += kUnfinished;
  const Index elements = parameter_count(model_units(info.shape));
  const bool leads = world.rank() == 0;
  // Each part ends with all ranks knowing whether all of them could do it.
  std::string trouble;
  auto together = [&](auto part) {
    if (!trouble.empty()) return;
    try {
      part();
    } catch (const std::exception& error) {
      trouble = error.what();
    }
    double failures = trouble.empty() ? 0 : 1;
    world.all_reduce(&failures, 1);
    if (failures > 0 && trouble.empty()) trouble = "another rank could not write its part";
  };
  together([&] {
    if (!leads) return;
    fs::create_directories(folder_);
    remove_unfinished(folder_);
    fs::create_directory(unfinished);
    for (StateKind kind : kKinds)
      File(unfinished / file_of(kind), O_WRONLY | O_CREAT | O_EXCL)
          .reserve(static_cast<std::size_t>(elements) * sizeof(float));
  });
  together([&] {
    for (StateKind kind : kKinds) {
      File file(unfinished / file_of(kind), O_WRONLY);
      states(kind, [&](Index first, const float* values, Index count) {
        file.write(values, static_cast<std::size_t>(count) * sizeof(float),
                   static_cast<std::size_t>(first) * sizeof(float));
      });
      file.sync();
    }
  });
  together([&] {
    if (!leads) return;
    if (!info.tokenizer.empty()) write_file(unfinished / kTokenizer, info.tokenizer);
    write_file(unfinished / kDescription, to_json(info, elements).dump(2) + '\n');
    File(unfinished, O_RDONLY | O_DIRECTORY).sync();
    if (fs::exists(path)) remove_checkpoint(path);
    fs::rename(unfinished, path);
    File(folder_, O_RDONLY | O_DIRECTORY).sync();
    std::vector<fs::path> all = list_checkpoints(folder_);
    for (std::size_t i = 0; i + static_cast<std::size_t>(kept_) < all.size(); ++i) remove_checkpoint(all[i]);
  });
  if (!trouble.empty() && leads) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
  }
  return trouble;
}

}  // namespace trainer

// A device plugin that offers names instead of devices:
//
//	deviceplugin RESOURCE VARIABLE NAME...
//
// Containers that ask for RESOURCE find the names that the kubelet has chosen for them in VARIABLE. Like its
// models it registers anew when the kubelet has started anew, which removes every plugin's socket.
package main

import (
	"context"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource, variable string
	names              []string
	over               context.Context
}

func (p plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	offered := &api.ListAndWatchResponse{}
	for _, name := range p.names {
		offered.Devices = append(offered.Devices, &api.Device{ID: name, Health: api.Healthy})
	}
	if err := stream.Send(offered); err != nil {
		return err
	}
	select { // nothing changes; the end of the stream would say that all devices are gone
	case <-p.over.Done():
	case <-stream.Context().Done():
	}
	return nil
}

func (p plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{p.variable: strings.Join(container.DevicesIds, ",")},
		})
	}
	return answer, nil
}

// serve offers the devices until the kubelet's or the plugin's own socket is another one.
func (p plugin) serve(kubelet os.FileInfo) error {
	endpoint := strings.NewReplacer("/", "-", ".", "-").Replace(p.resource) + ".sock"
	path := filepath.Join(api.DevicePluginPath, endpoint)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	over, stop := context.WithCancel(context.Background())
	p.over = over
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	defer server.Stop()
	defer stop()
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: p.resource}
	limited, cancel := context.WithTimeout(over, 5*time.Second)
	defer cancel()
	if _, err := api.NewRegistrationClient(connection).Register(limited, request); err != nil {
		return err
	}
	log.Printf("offering %s: %v", p.resource, p.names)
	for {
		time.Sleep(200 * time.Millisecond)
		now, err := os.Stat(api.KubeletSocket)
		if err != nil || !os.SameFile(now, kubelet) || !now.ModTime().Equal(kubelet.ModTime()) {
			return nil
		}
		if _, err := os.Stat(path); err != nil {
			return nil
		}
	}
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: deviceplugin RESOURCE VARIABLE NAME...")
	}
	p := plugin{resource: os.Args[1], variable: os.Args[2], names: os.Args[3:]}
	for {
		if kubelet, err := os.Stat(api.KubeletSocket); err == nil {
			if err := p.serve(kubelet); err != nil {
				log.Print(err)
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
}
